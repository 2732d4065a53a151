//! Finalizers: clean-up that must happen before an object may go.

use std::future::Future;

use serde_json::json;

use crate::ObjectKey;
use crate::apply::{Object, Writer, status_code};
use crate::reconcile::{Action, Error, Result};

/// How often a finalizer is put or taken again after a conflict.
const ATTEMPTS: usize = 6;

/// Puts the finalizer on the object, if it is not there. The object as it is now.
///
/// An object that is being deleted is left alone: the server accepts no new finalizer then.
pub async fn ensure<T: Object>(writer: &Writer, object: &T, finalizer: &str) -> Result<T> {
    check(finalizer)?;
    change(writer, object, |finalizers, deleting| {
        let wanted = !deleting && !finalizers.iter().any(|present| present == finalizer);
        wanted.then(|| finalizers.iter().cloned().chain([finalizer.to_owned()]).collect())
    })
    .await
    .map(|now| now.unwrap_or_else(|| object.clone()))
}

/// Takes the finalizer from the object, if it is there. An object that is gone is no error.
pub async fn remove<T: Object>(writer: &Writer, object: &T, finalizer: &str) -> Result<()> {
    change(writer, object, |finalizers, _| {
        let present = finalizers.iter().any(|present| present == finalizer);
        present.then(|| finalizers.iter().filter(|present| *present != finalizer).cloned().collect())
    })
    .await
    .map(drop)
}

/// Runs `clean_up` when the object is being deleted and `reconcile` otherwise, with the finalizer in place.
///
/// The finalizer is there before `reconcile` runs for the first time, and goes only after `clean_up` succeeded.
/// Both may run more than once.
pub async fn finalize<T, R, C>(
    writer: &Writer,
    object: &T,
    finalizer: &str,
    reconcile: impl FnOnce(T) -> R,
    clean_up: impl FnOnce(T) -> C,
) -> Result<Action>
where
    T: Object,
    R: Future<Output = Result<Action>>,
    C: Future<Output = Result<()>>,
{
    let meta = object.meta();
    let present = meta.finalizers.iter().flatten().any(|present| present == finalizer);
    if meta.deletion_timestamp.is_some() {
        if present {
            clean_up(object.clone()).await?;
            remove(writer, object, finalizer).await?;
        }
        return Ok(Action::AwaitChange);
    }
    let object = if present { object.clone() } else { ensure(writer, object, finalizer).await? };
    // The cache was behind: the object is being deleted, and the event that says so is on its way.
    if object.meta().deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    reconcile(object).await
}

/// Writes the finalizers that `next` gives for those present; `None` from it: nothing to write.
async fn change<T: Object>(
    writer: &Writer,
    object: &T,
    next: impl Fn(&[String], bool) -> Option<Vec<String>>,
) -> Result<Option<T>> {
    let key = ObjectKey::of(object);
    let uid = object.meta().uid.clone();
    let mut current = object.clone();
    for attempt in 1.. {
        let meta = current.meta();
        let Some(finalizers) =
            next(meta.finalizers.as_deref().unwrap_or_default(), meta.deletion_timestamp.is_some())
        else {
            return Ok(Some(current));
        };
        match writer.patch_as_read(&current, json!({"metadata": {"finalizers": finalizers}})).await {
            Ok(now) => return Ok(Some(now)),
            Err(error) if status_code(&error) == Some(404) => return Ok(None),
            Err(error) if status_code(&error) == Some(409) && attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
        match writer.get::<T>(&key).await? {
            // Another object of that name has nothing to do with this one.
            Some(now) if now.meta().uid == uid => current = now,
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn check(finalizer: &str) -> Result<()> {
    let qualified =
        finalizer.split_once('/').is_some_and(|(domain, name)| domain.contains('.') && !name.is_empty());
    if qualified {
        return Ok(());
    }
    Err(Error::permanent(format!(
        "the finalizer {finalizer:?} must be a qualified name such as \"example.com/clean-up\""
    )))
}
