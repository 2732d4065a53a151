//! JSON and YAML texts to values, with the duplicate fields that strict decoding complains about.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_saphyr::options::DuplicateKeyPolicy;
use shoal_objects::{Map, Value};

use super::{MAX_REPORTED, prefix, syntax};

/// Reads one JSON document. Also returns the paths of fields that stand twice (the last one wins).
/// The error is in the words of Go's decoder.
pub fn parse_json(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    // Go replaces what is not UTF-8 instead of refusing it.
    let text = String::from_utf8_lossy(bytes);
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let read = Noting(&mut duplicates).deserialize(&mut deserializer);
    match read.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(value) => Ok((value, duplicates)),
        Err(error) => Err(syntax::complaint(text.as_bytes()).unwrap_or_else(|| match error.is_eof() {
            true => "unexpected end of JSON input".to_owned(),
            false => error.to_string(),
        })),
    }
}

/// Reads one YAML document the way YAML 1.1 is read (`yes` is true, `0644` is octal), as the real server does.
/// Also returns the paths of fields that stand twice.
pub fn parse_yaml(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 128, flow_nesting_limit: 128 },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    };
    let mut duplicates = Vec::new();
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        Noting(&mut duplicates).deserialize(deserializer)
    });
    read.map(|value| (value, duplicates)).map_err(|error| format!("yaml: {error}"))
}

/// Builds a value and notes the fields that stand twice. Paths are completed on the way out, so that documents
/// without duplicates cost nothing.
struct Noting<'a>(&'a mut Vec<String>);

impl<'de> DeserializeSeed<'de> for Noting<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Noting<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let before = self.0.len();
            let Some(item) = items.next_element_seed(Noting(self.0))? else { break };
            if self.0.len() > before {
                prefix(&mut self.0[before..], &format!("[{}]", list.len()));
            }
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let before = self.0.len();
            let value = entries.next_value_seed(Noting(self.0))?;
            if self.0.len() > before {
                prefix(&mut self.0[before..], &key);
            }
            match map.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(value);
                }
                Entry::Occupied(mut taken) => {
                    if self.0.len() < MAX_REPORTED {
                        self.0.push(taken.key().clone());
                    }
                    taken.insert(value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}
