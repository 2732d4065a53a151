//! Random objects of built-in types, for property tests.

use serde_json::json;
use shoal_objects::schema::{Shape, TypeId, Types};
use shoal_objects::{Map, Timestamp, Value};

/// A random object of a type: only fields that protobuf has, no empty collections (protobuf has no empty lists).
pub fn object(id: TypeId, seed: u64) -> Value {
    Generator { state: seed, budget: 300 }.object(super::types(), id, 0)
}

struct Generator {
    state: u64,
    budget: usize,
}

impl Generator {
    fn below(&mut self, limit: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    fn text(&mut self) -> Value {
        ["", "a", "b/c", "ümlaut", "0"][self.below(5) as usize].into()
    }

    fn object(&mut self, types: &Types, id: TypeId, depth: usize) -> Value {
        let mut map = Map::new();
        for field in types.get(id).fields.iter().filter(|field| field.tag != 0) {
            let chance = if depth < 3 { 2 } else { 6 };
            if self.budget > 0 && depth < 8 && self.below(chance) == 0 {
                self.budget -= 1;
                map.insert(field.name.to_string(), self.value(types, &field.shape, depth + 1));
            }
        }
        Value::Object(map)
    }

    fn value(&mut self, types: &Types, shape: &Shape, depth: usize) -> Value {
        match shape {
            Shape::String | Shape::Duration => self.text(),
            Shape::Int32 => (self.below(1 << 32) as u32 as i32).into(),
            Shape::Int64 => (self.below(1 << 31) as i64 * self.below(1 << 31) as i64 - (1 << 40)).into(),
            Shape::Double => (self.below(1000) as f64 / 8.0).into(),
            Shape::Boolean => (self.below(2) == 0).into(),
            Shape::Bytes => ["", "AP8Q", "AA=="][self.below(3) as usize].into(),
            Shape::Time => Timestamp(self.below(1 << 31) as i64 * 1_000_000).to_string().into(),
            Shape::MicroTime => Timestamp(self.below(1 << 31) as i64 * 999_983).to_micro_string().into(),
            Shape::Quantity => ["1500m", "2Gi", "0"][self.below(3) as usize].into(),
            Shape::IntOrString if self.below(2) == 0 => self.text(),
            Shape::IntOrString => (self.below(70_000) as i32).into(),
            Shape::Any => json!({"any": [1, "x", {}], "n": self.below(9)}),
            Shape::Object(id) => self.object(types, *id, depth),
            Shape::ObjectOr(id, _) if self.below(2) == 0 => self.object(types, *id, depth),
            Shape::ObjectOr(_, other) => self.value(types, other, depth),
            Shape::List(item) => {
                let length = 1 + self.below(2);
                (0..length).map(|_| self.value(types, item, depth)).collect()
            }
            Shape::Map(item) => {
                let key = ["a", "b.test/c", ""][self.below(3) as usize];
                json!({ key: self.value(types, item, depth) })
            }
        }
    }
}
