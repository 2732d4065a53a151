//! Fields of the built-in types by their protobuf tag.

use std::sync::LazyLock;

use shoal_objects::schema::{Field, TypeId};

use crate::builtin;

/// The fields of a message, each at the index of its tag. Those of Kubernetes are below 50.
#[derive(Debug, Default)]
pub struct Tags(Vec<Slot>);

/// What stands behind a tag.
#[derive(Debug, Default)]
pub enum Slot {
    /// Nothing that this version knows.
    #[default]
    Unknown,
    /// A field of the JSON object, and its position among the fields of the type.
    Field(&'static Field, usize),
    /// A message whose fields stand in the same JSON object.
    Embedded(Tags),
}

static TAGS: LazyLock<Vec<Tags>> = LazyLock::new(|| {
    let of_fields = |fields: &'static [Field]| {
        let mut tags = Tags::default();
        for (position, field) in fields.iter().enumerate().filter(|(_, field)| field.tag != 0) {
            tags.add(&field.embedded, field, position);
        }
        tags.0.shrink_to_fit();
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
    fn add(&mut self, path: &[u32], field: &'static Field, position: usize) {
        let tag = path.first().copied().unwrap_or(field.tag) as usize;
        if self.0.len() <= tag {
            self.0.resize_with(tag + 1, Slot::default);
        }
        match (path, &mut self.0[tag]) {
            ([], slot @ Slot::Unknown) => *slot = Slot::Field(field, position),
            ([_, rest @ ..], Slot::Embedded(inner)) => inner.add(rest, field, position),
            ([_, rest @ ..], slot @ Slot::Unknown) => {
                let mut inner = Tags::default();
                inner.add(rest, field, position);
                *slot = Slot::Embedded(inner);
            }
            // Two fields of one tag: the table is wrong, the first one stays.
            _ => {}
        }
    }

    /// The type has no protobuf form, or no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What stands behind a tag.
    pub fn get(&self, tag: u32) -> &Slot {
        self.0.get(tag as usize).unwrap_or(&Slot::Unknown)
    }

    /// All tags in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.0)
    }
}
