//! Fields of the built-in types by their protobuf tag.

use std::sync::LazyLock;

use shoal_objects::schema::{Field, TypeId};

use crate::builtin;

/// The fields of a message, sorted by tag.
#[derive(Debug, Default)]
pub struct Tags(Vec<(u32, Slot)>);

/// What stands behind a tag.
#[derive(Debug)]
pub enum Slot {
    /// A field of the JSON object.
    Field(&'static Field),
    /// A message whose fields stand in the same JSON object.
    Embedded(Tags),
}

static TAGS: LazyLock<Vec<Tags>> = LazyLock::new(|| {
    let of_fields = |fields: &'static [Field]| {
        let mut tags = Tags::default();
        for field in fields.iter().filter(|field| field.tag != 0) {
            tags.add(&field.embedded, field);
        }
        tags
    };
    builtin::types().iter().map(|(_, described)| of_fields(&described.fields)).collect()
});

/// The tags of a built-in type.
pub fn of(id: TypeId) -> &'static Tags {
    static NONE: Tags = Tags(Vec::new());
    TAGS.get(id.0 as usize).unwrap_or(&NONE)
}

impl Tags {
    fn add(&mut self, path: &[u32], field: &'static Field) {
        let tag = path.first().copied().unwrap_or(field.tag);
        let place = self.0.binary_search_by_key(&tag, |(tag, _)| *tag);
        match (path, place) {
            ([], Err(at)) => self.0.insert(at, (tag, Slot::Field(field))),
            ([_, rest @ ..], Ok(at)) => {
                if let Slot::Embedded(inner) = &mut self.0[at].1 {
                    inner.add(rest, field);
                }
            }
            ([_, rest @ ..], Err(at)) => {
                let mut inner = Tags::default();
                inner.add(rest, field);
                self.0.insert(at, (tag, Slot::Embedded(inner)));
            }
            // Two fields of one tag: the table is wrong, the first one stays.
            ([], Ok(_)) => {}
        }
    }

    /// The type has no protobuf form, or no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What stands behind a tag.
    pub fn get(&self, tag: u32) -> Option<&Slot> {
        self.0.binary_search_by_key(&tag, |(tag, _)| *tag).ok().map(|at| &self.0[at].1)
    }

    /// All tags in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.0.iter().map(|(tag, slot)| (*tag, slot))
    }
}
