//! The text of the two tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::omission::Omission;
use super::schema::{Field, Type};

const HEADER: &str = "# Kubernetes 1.36, written by `cargo xtask codegen`.\n";

/// One line per type (`Name flags`), below it one indented line per field (`name shape flags`).
pub fn types(types: &[Type]) -> String {
    let mut out = HEADER.to_owned();
    for t in types {
        out.push_str(&t.name);
        if t.atomic {
            out.push_str(" atomic");
        }
        if let Some((group, version, kind)) = &t.gvk {
            let _ = write!(out, " gvk={group}/{version}/{kind}");
        }
        out.push('\n');
        for f in &t.fields {
            field(f, &mut out);
        }
    }
    out
}

fn field(f: &Field, out: &mut String) {
    let _ = write!(out, " {} {}", f.name, f.shape);
    if f.tag != 0 {
        let path: String = f.embedded.iter().map(|tag| format!("{tag}.")).collect();
        let _ = write!(out, " #{path}{}", f.tag);
    }
    if f.required {
        out.push_str(" required");
    }
    out.push_str(match f.omission {
        Omission::Pointer => "",
        Omission::Omit => " omit",
        Omission::Zero => " zero",
        Omission::Null => " null",
    });
    match &f.list_type {
        Some(map) if map == "map" => {
            let _ = write!(out, " list=map:{}", f.list_keys.join(","));
        }
        Some(other) => {
            let _ = write!(out, " list={other}");
        }
        None => {}
    }
    if f.atomic {
        out.push_str(" atomic");
    }
    for strategy in &f.patch_strategy {
        match (strategy.as_str(), &f.merge_key) {
            ("merge", Some(key)) => {
                let _ = write!(out, " merge={key}");
            }
            (other, _) => {
                let _ = write!(out, " {other}");
            }
        }
    }
    out.push('\n');
}

/// One line per distinct text, below it one indented line per type or `Type.field` it belongs to.
pub fn descriptions(types: &[Type]) -> String {
    let mut users: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for t in types {
        users.entry(&t.description).or_default().push(t.name.clone());
        for f in &t.fields {
            users.entry(&f.description).or_default().push(format!("{}.{}", t.name, f.name));
        }
    }
    users.remove("");
    let mut out = HEADER.to_owned();
    for (text, names) in users {
        out.push_str(&text.replace('\\', "\\\\").replace('\n', "\\n"));
        out.push('\n');
        for name in names {
            let _ = writeln!(out, " {name}");
        }
    }
    out
}
