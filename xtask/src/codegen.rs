//! Writes the tables of the built-in types: what the OpenAPI definitions say about fields, joined with the protobuf
//! tags of the generated messages, some newer ones (`codegen/tags.txt`), and with what only the Go structs know
//! (`codegen/go-fields.txt`).

mod messages;
mod omission;
mod schema;
mod sources;
mod table;

use std::path::Path;

/// Fetches the sources, writes `types.txt` and `descriptions.txt` and reports what does not match.
pub fn run() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let work =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join("codegen");
    std::fs::create_dir_all(&work)?;

    let definitions = sources::definitions(&work)?;
    let mut remarks = Vec::new();
    let mut messages = messages::read(&sources::protobuf_messages(&work)?)?;
    messages::supplement(&mut messages, include_str!("codegen/tags.txt"), &mut remarks)?;
    let omissions = omission::read(include_str!("codegen/go-fields.txt"))?;

    let types = schema::join(&definitions, &messages, &omissions, &mut remarks)?;
    remarks.extend(omissions.unused().map(|name| format!("go-fields.txt: {name} is not in the schema")));

    let builtin = root.join("crates/apiserver/src/builtin");
    std::fs::write(builtin.join("types.txt"), table::types(&types))?;
    std::fs::write(builtin.join("descriptions.txt"), table::descriptions(&types))?;
    for remark in &remarks {
        println!("{remark}");
    }
    println!("{} types, {} remarks", types.len(), remarks.len());
    Ok(())
}
