//! Removing children that are not wanted any more.

use std::collections::HashSet;

use super::{Object, Writer};
use crate::reconcile::Result;
use crate::{ObjectKey, owner};

impl Writer {
    /// Deletes those of `present` that `parent` controls and that are not in `wanted`; tells how many.
    ///
    /// Objects that someone else owns are never touched, whatever their names and labels.
    pub async fn prune<O: Object, T: Object>(
        &self,
        parent: &O,
        present: impl IntoIterator<Item = impl AsRef<T>>,
        wanted: impl IntoIterator<Item = ObjectKey>,
    ) -> Result<usize> {
        let wanted: HashSet<ObjectKey> = wanted.into_iter().collect();
        let mut deleted = 0;
        for child in present {
            let child = child.as_ref();
            let ours = owner::is_controlled_by(child.meta(), parent.meta());
            if ours && child.meta().deletion_timestamp.is_none() && !wanted.contains(&ObjectKey::of(child)) {
                deleted += usize::from(self.delete(child).await?);
            }
        }
        Ok(deleted)
    }
}
