//! The generated code: made anew from the `.proto` files, it is what is checked in.
//!
//! No program is needed: protox compiles the files, prost and tonic generate the code.

use std::fs;
use std::path::Path;

use prost::Message as _;
use prost_types::FileDescriptorSet;

/// Generates into a scratch directory and compares; with `update`, replaces what is checked in.
pub fn check(crate_dir: &Path, update: bool) {
    let proto = crate_dir.join("proto");
    let mut names: Vec<_> = fs::read_dir(proto.join("stepback/v1"))
        .unwrap()
        .map(|entry| format!("stepback/v1/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    names.sort();
    let scratch = tempfile::tempdir().unwrap();
    let described = compile(&proto, &names, true);
    generate(&described, scratch.path());
    let plain = compile(&proto, &names, false).encode_to_vec();
    fs::write(scratch.path().join("stepback.v1.binpb"), plain).unwrap();
    for name in ["stepback.v1.rs", "stepback.v1.binpb"] {
        let (made, kept) = (scratch.path().join(name), crate_dir.join("generated").join(name));
        if update {
            fs::copy(&made, &kept).unwrap();
        }
        let same = fs::read(&made).unwrap() == fs::read(&kept).unwrap_or_default();
        assert!(same, "generated/{name} is out of date: run this test with STEPBACK_UPDATE_PROTO=1");
    }
}

fn compile(proto: &Path, names: &[String], with_comments: bool) -> FileDescriptorSet {
    let mut compiler = protox::Compiler::new([proto]).unwrap();
    compiler.include_source_info(with_comments).include_imports(true);
    compiler.open_files(names).unwrap_or_else(|error| panic!("{error}"));
    compiler.file_descriptor_set()
}

fn generate(files: &FileDescriptorSet, into: &Path) {
    let mut builder =
        tonic_prost_build::configure().out_dir(into).build_transport(false).emit_rerun_if_changed(false);
    let methods = files.file.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
    let inputs: Vec<&str> = methods.map(|method| method.input_type()).collect();
    for message in files.file.iter().flat_map(|file| &file.message_type) {
        let name = message.name();
        let path = format!(".stepback.v1.{name}");
        if matches!(name, "Event" | "Chunk" | "Problem") {
            continue;
        }
        let is_input = inputs.contains(&path.as_str());
        let derive = match name {
            // Both are the value itself in JSON.
            "TextList" => "#[derive(serde::Serialize, serde::Deserialize)]\n#[serde(transparent)]",
            "JsonDocument" => {
                "#[derive(serde::Deserialize)]\n#[serde(from = \"Box<serde_json::value::RawValue>\")]"
            }
            _ if is_input => "#[derive(serde::Serialize)]",
            _ => "#[derive(serde::Deserialize)]\n#[serde(default)]",
        };
        builder = builder.type_attribute(&path, derive);
        for field in &message.field {
            let Some(key) = field.name().strip_suffix("_json") else { continue };
            let optional = if field.proto3_optional() { "::optional" } else { "" };
            let with = match is_input {
                true => format!("serialize_with = \"crate::json_text{optional}::serialize\""),
                false => format!("deserialize_with = \"crate::json_text{optional}::deserialize\""),
            };
            let attribute = format!("#[serde(rename = \"{key}\", {with})]");
            builder = builder.field_attribute(format!("{path}.{}", field.name()), attribute);
        }
    }
    builder.compile_fds(files.clone()).unwrap();
}
