//! Reads `types.txt`. The format is described where it is written, in `xtask/src/codegen/table.rs`.

use std::collections::HashMap;

use shoal_objects::Value;
use shoal_objects::schema::{Empty, Field, ListType, Shape, Type, TypeId, Types};

/// The parsed table.
#[derive(Debug)]
pub struct Table {
    /// All types.
    pub types: Types,
    /// Types of kinds, by kind.
    pub kinds: HashMap<&'static str, Vec<Kind>>,
    /// Lines that were not understood; none unless the generator and this reader disagree.
    pub problems: Vec<String>,
}

/// The type that stands for a kind of a group and version.
#[derive(Debug)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    /// Such as `v1`.
    pub version: &'static str,
    /// Its type.
    pub id: TypeId,
}

/// Reads the table. Types refer to later types, so their names are collected first.
pub fn read(text: &'static str) -> Table {
    let mut ids = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with([' ', '#'])) {
        let name = line.split(' ').next().unwrap_or_default();
        ids.insert(name, TypeId(ids.len() as u32));
    }

    let mut types: Vec<Type> = Vec::with_capacity(ids.len());
    let mut kinds: HashMap<&'static str, Vec<Kind>> = HashMap::new();
    let mut problems = Vec::new();
    let mut package = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(line) = line.strip_prefix(' ') {
            match (field(line, package, &ids), types.last_mut()) {
                (Some(mut field), Some(owner)) => {
                    field.default = key_default(&owner.name, &field.name);
                    owner.fields.push(field);
                }
                _ => problems.push(line.to_owned()),
            }
            continue;
        }
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        package = name.rsplit_once('.').map_or("", |(package, _)| package);
        let mut atomic = false;
        for word in words {
            let mut gvk = word.strip_prefix("gvk=").unwrap_or_default().splitn(3, '/');
            match (gvk.next(), gvk.next(), gvk.next()) {
                (Some(group), Some(version), Some(kind)) => {
                    kinds.entry(kind).or_default().push(Kind {
                        group,
                        version,
                        id: TypeId(types.len() as u32),
                    });
                }
                _ if word == "atomic" => atomic = true,
                _ => problems.push(line.to_owned()),
            }
        }
        types.push(Type { name: name.into(), fields: Vec::new(), atomic, preserves_unknown: false });
    }
    Table { types: Types::new(types), kinds, problems }
}

/// The list keys that may be left out.
fn key_default(owner: &str, field: &str) -> Option<Box<Value>> {
    let value = match (owner.strip_prefix("io.k8s.api.core.v1.")?, field) {
        ("ContainerPort" | "ServicePort", "protocol") => "TCP",
        ("LocalObjectReference", "name") => "",
        _ => return None,
    };
    Some(Box::new(value.into()))
}

fn field(line: &str, package: &str, ids: &HashMap<&str, TypeId>) -> Option<Field> {
    let mut words = line.split(' ');
    let mut field = Field::new(words.next()?, shape(words.next()?, package, ids)?);
    for word in words {
        match word {
            "required" => field.required = true,
            "omit" => field.empty = Empty::Omitted,
            "zero" => field.empty = Empty::Zero,
            "null" => field.empty = Empty::Null,
            "atomic" => field.atomic = true,
            "merge" => field.patch.merge = true,
            "retainKeys" => field.patch.retain_keys = true,
            "replace" => {}
            _ => valued_flag(word, &mut field)?,
        }
    }
    Some(field)
}

fn valued_flag(word: &str, field: &mut Field) -> Option<()> {
    if let Some(path) = word.strip_prefix('#') {
        let mut tags = path.split('.').map(|tag| tag.parse().ok()).collect::<Option<Vec<u32>>>()?;
        field.tag = tags.pop()?;
        field.embedded = tags;
    } else if let Some(key) = word.strip_prefix("merge=") {
        field.patch.merge = true;
        field.patch.merge_key = Some(key.into());
    } else {
        field.list_declared = true;
        field.list = match word.strip_prefix("list=")? {
            "atomic" => ListType::Atomic,
            "set" => ListType::Set,
            other => ListType::Map(other.strip_prefix("map:")?.split(',').map(Into::into).collect()),
        };
    }
    Some(())
}

fn shape(word: &str, package: &str, ids: &HashMap<&str, TypeId>) -> Option<Shape> {
    if let Some(item) = word.strip_prefix("[]") {
        return Some(Shape::List(Box::new(shape(item, package, ids)?)));
    }
    if let Some(value) = word.strip_prefix("{}") {
        return Some(Shape::Map(Box::new(shape(value, package, ids)?)));
    }
    if let Some((object, other)) = word.split_once('|') {
        let Shape::Object(id) = shape(object, package, ids)? else { return None };
        return Some(Shape::ObjectOr(id, Box::new(shape(other, package, ids)?)));
    }
    Some(match word {
        "string" => Shape::String,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "double" => Shape::Double,
        "bool" => Shape::Boolean,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "any" => Shape::Any,
        name if name.contains('.') => Shape::Object(*ids.get(name)?),
        name => Shape::Object(*ids.get(&*format!("{package}.{name}"))?),
    })
}
