//! Reads the generated prost structs: names, tags and the messages that fields refer to.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;

/// Messages by [`key`].
pub type Messages = HashMap<String, Message>;

/// A protobuf message.
pub struct Message {
    /// In the order of the source.
    pub fields: Vec<MessageField>,
}

/// A field of a message.
pub struct MessageField {
    /// As [`squeeze`]d.
    pub name: String,
    pub tag: u32,
    /// The prost attribute before the tag: `string, optional`, `btree_map = "string, bytes"` …
    pub kind: String,
    /// The [`key`] of the message it holds, if it holds one.
    pub message: Option<String>,
}

/// Letters and digits in lower case: what prost's, protobuf's and JSON's spelling of a name have in common.
pub fn squeeze(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Names a message or an OpenAPI definition (`io.k8s.api.core.v1.Pod`) the same way.
pub fn key(full_name: &str) -> String {
    full_name.split('.').map(squeeze).collect::<Vec<_>>().join(".")
}

/// Reads all messages under the source directory of the crate.
pub fn read(sources: &Path) -> anyhow::Result<Messages> {
    let mut messages = Messages::new();
    read_module(sources, "io.k8s", &mut messages)?;
    Ok(messages)
}

/// Adds the fields of `tags.txt`, which are newer than the crate. What the crate has by now is told.
pub fn supplement(messages: &mut Messages, text: &str, remarks: &mut Vec<String>) -> anyhow::Result<()> {
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(' ');
        let mut word = || words.next().with_context(|| line.to_owned());
        let (message, field, tag) = (word()?, word()?, word()?.parse()?);
        let fields = &mut messages.entry(key(message)).or_insert(Message { fields: Vec::new() }).fields;
        if fields.iter().any(|known| known.name == squeeze(field)) {
            remarks.push(format!("tags.txt: {message}.{field} is in the crate now"));
        } else {
            fields.push(MessageField { name: squeeze(field), tag, kind: String::new(), message: None });
        }
    }
    Ok(())
}

fn read_module(directory: &Path, package: &str, messages: &mut Messages) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            read_module(&entry.path(), &format!("{package}.{name}"), messages)?;
        } else if name == "mod.rs" {
            let text = std::fs::read_to_string(entry.path())?;
            read_structs(&text, package, messages).with_context(|| package.to_owned())?;
        }
    }
    Ok(())
}

fn read_structs(text: &str, package: &str, messages: &mut Messages) -> anyhow::Result<()> {
    let code: String =
        text.lines().filter(|l| !l.trim_start().starts_with("//")).map(|l| l.trim_start()).collect();
    for part in code.split("pub struct ").skip(1) {
        let (name, rest) = part.split_once([' ', '{']).context("struct without body")?;
        let body = rest.trim_start_matches(['{', ' ']).split_once('}').map_or("", |(body, _)| body);
        let fields =
            body.split("#[prost(").skip(1).map(|f| read_field(f, package)).collect::<anyhow::Result<_>>()?;
        messages.insert(key(&format!("{package}.{name}")), Message { fields });
    }
    Ok(())
}

fn read_field(text: &str, package: &str) -> anyhow::Result<MessageField> {
    let (attribute, rest) = text.split_once(")]").context("attribute")?;
    let (kind, tag) = attribute.split_once("tag = \"").context("tag")?;
    let tag = tag.trim_end_matches('"').parse()?;
    let (name, rust_type) = rest.trim_start_matches("pub ").split_once(':').context("field name")?;
    let kind = kind.trim_end_matches([' ', ',']).to_owned();
    let message = kind.contains("message").then(|| message_key(rust_type, package));
    Ok(MessageField { name: squeeze(name.trim_start_matches("r#")), tag, kind, message })
}

/// The innermost path of `Option<super::super::core::v1::Pod>` and the like, seen from `package`.
fn message_key(rust_type: &str, package: &str) -> String {
    let path = rust_type.split(['<', ',', '>']).map(str::trim).rfind(|p| !p.is_empty()).unwrap_or_default();
    let mut module: Vec<&str> = package.split('.').collect();
    let mut path = path;
    while let Some(rest) = path.strip_prefix("super::") {
        module.pop();
        path = rest;
    }
    key(&format!("{}.{}", module.join("."), path.replace("::", ".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_tags_and_messages_are_read_from_generated_structs() {
        let text = r#"
            /// A comment with #[prost( in it.
            #[derive(Clone)]
            pub struct Volume {
                #[prost(string, optional, tag = "1")]
                pub r#type: ::core::option::Option<::prost::alloc::string::String>,
                #[prost(btree_map = "string, message", tag = "20")]
                pub limits: ::prost::alloc::collections::BTreeMap<
                    ::prost::alloc::string::String,
                    super::super::super::apimachinery::pkg::api::resource::Quantity,
                >,
            }
            pub struct Nothing {}
        "#;
        let mut messages = Messages::new();
        read_structs(text, "io.k8s.api.core.v1", &mut messages).expect("structs");
        let fields = &messages["io.k8s.api.core.v1.volume"].fields;
        assert_eq!((fields[0].name.as_str(), fields[0].tag, &fields[0].message), ("type", 1, &None));
        assert_eq!((fields[1].name.as_str(), fields[1].tag), ("limits", 20));
        assert_eq!(fields[1].message.as_deref(), Some("io.k8s.apimachinery.pkg.api.resource.quantity"));
        assert!(messages["io.k8s.api.core.v1.nothing"].fields.is_empty());

        let mut remarks = Vec::new();
        let more = "# newer\nio.k8s.api.core.v1.Volume type 1\nio.k8s.api.core.v1.Volume newField 7\n";
        supplement(&mut messages, more, &mut remarks).expect("tags");
        assert_eq!(remarks, ["tags.txt: io.k8s.api.core.v1.Volume.type is in the crate now"]);
        let added = &messages["io.k8s.api.core.v1.volume"].fields[2];
        assert_eq!((added.name.as_str(), added.tag), ("newfield", 7));
    }
}
