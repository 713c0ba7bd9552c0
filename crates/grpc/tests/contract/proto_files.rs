//! The `.proto` files as text: their messages and operations, and adding fields to them.
//!
//! They are read line by line, which is enough for files in which each field is a line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::documents::{ExpectedField, ExpectedMessage, ExpectedMessages};
use crate::{OWN_FIELDS, OWN_MESSAGES};

/// All files, by path.
pub struct ProtoFiles {
    files: BTreeMap<PathBuf, Vec<String>>,
}

/// One operation of a service.
#[derive(Clone, Debug)]
pub struct RpcOperation {
    pub service: String,
    pub name: String,
    pub request: String,
    pub response: String,
    pub is_stream: bool,
    /// The method and path of the same operation over HTTP, from the comment above it.
    pub method: String,
    pub path: String,
    /// The file that it is in.
    pub file: PathBuf,
}

/// Where a message stands.
struct MessageLines {
    file: PathBuf,
    /// The line of its name, and of its last brace.
    first: usize,
    last: usize,
}

impl ProtoFiles {
    pub fn read(dir: &Path) -> Self {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            files.insert(path, text.lines().map(str::to_owned).collect());
        }
        Self { files }
    }

    pub fn write(&self) {
        for (path, lines) in &self.files {
            fs::write(path, lines.join("\n") + "\n").unwrap();
        }
    }

    pub fn rpcs(&self) -> Vec<RpcOperation> {
        let mut rpcs = Vec::new();
        for (file, lines) in &self.files {
            let (mut service, mut http) = (String::new(), None);
            for line in lines.iter().map(|line| line.trim()) {
                if let Some(name) = line.strip_prefix("service ") {
                    service = name.trim_end_matches(" {").to_owned();
                } else if let Some(address) = line.strip_prefix("// HTTP: ") {
                    http = address.split_once(' ');
                } else if let Some(rest) = line.strip_prefix("rpc ") {
                    let (name, rest) = rest.split_once('(').unwrap();
                    let (request, rest) = rest.split_once(") returns (").unwrap();
                    let response = rest.trim_end_matches(");");
                    let (method, path) =
                        http.take().unwrap_or_else(|| panic!("{name}: no comment `// HTTP: METHOD PATH`"));
                    rpcs.push(RpcOperation {
                        service: service.clone(),
                        name: name.to_owned(),
                        request: request.to_owned(),
                        response: response.trim_start_matches("stream ").to_owned(),
                        is_stream: response.starts_with("stream "),
                        method: method.to_owned(),
                        path: path.to_owned(),
                        file: file.clone(),
                    });
                }
            }
        }
        rpcs
    }

    /// What differs from a message that the HTTP API has. With `update`, what is missing is added and only the rest returned.
    pub fn compare(&mut self, expected: &ExpectedMessage, update: bool) -> Vec<String> {
        let name = &expected.name;
        if self.find(name).is_none() {
            if !update {
                return vec![format!("message {name} is missing")];
            }
            let file = expected.file.clone().unwrap_or_else(|| self.documents_file());
            let lines = self.files.get_mut(&file).unwrap();
            lines.push(String::new());
            lines.extend(comment("", &expected.comment));
            lines.extend([format!("message {name} {{"), "}".to_owned()]);
        }
        let mut problems = Vec::new();
        for field in &expected.fields {
            let found = self.fields(name).into_iter().find(|(declared, _)| declared.name == field.name);
            match found {
                Some((declared, _)) if declared.kind == field.kind => {}
                // The bytes of both are the same.
                Some((declared, number))
                    if update
                        && declared.kind.trim_start_matches("optional ")
                            == field.kind.trim_start_matches("optional ") =>
                {
                    self.set_kind(name, &declared, number, &field.kind);
                }
                Some((declared, _)) => problems.push(format!(
                    "{name}.{}: is {}, but the HTTP API has {}",
                    field.name, declared.kind, field.kind
                )),
                None if update => self.add_field(name, field),
                None => problems.push(format!("{name}.{} is missing: {}", field.name, field.kind)),
            }
        }
        for (declared, number) in self.fields(name) {
            let is_own = OWN_FIELDS.contains(&(name.as_str(), declared.name.as_str()));
            if !is_own && !expected.fields.iter().any(|field| field.name == declared.name) {
                problems.push(format!(
                    "{name}.{} is not in the HTTP API: remove it, and add `reserved {number};`",
                    declared.name
                ));
            }
        }
        problems
    }

    /// Messages that no operation uses.
    pub fn unknown_messages(&self, expected: &ExpectedMessages) -> Vec<String> {
        let names = self.files.values().flatten().filter_map(|line| line.strip_prefix("message "));
        let names = names.map(|name| name.trim_end_matches('}').trim_end_matches(" {").trim_end());
        let known = |name: &&str| {
            OWN_MESSAGES.contains(name) || expected.messages.iter().any(|message| message.name == **name)
        };
        names
            .filter(|name| !known(name))
            .map(|name| format!("message {name} is used by no operation: remove it"))
            .collect()
    }

    fn documents_file(&self) -> PathBuf {
        self.files.keys().find(|path| path.ends_with("documents.proto")).unwrap().clone()
    }

    fn find(&self, name: &str) -> Option<MessageLines> {
        let opening = format!("message {name} {{");
        self.files.iter().find_map(|(file, lines)| {
            let first = lines.iter().position(|line| line.starts_with(&opening))?;
            let last = first
                + lines[first..].iter().position(|line| line.ends_with('}') && !line.starts_with(' '))?;
            Some(MessageLines { file: file.clone(), first, last })
        })
    }

    /// The fields of a message, with their numbers.
    fn fields(&self, name: &str) -> Vec<(ExpectedField, u32)> {
        let Some(place) = self.find(name) else { return Vec::new() };
        let lines = &self.files[&place.file][place.first..place.last];
        let fields = lines.iter().filter_map(|line| {
            let (field, number) = line.trim().trim_end_matches(';').rsplit_once(" = ")?;
            let (kind, name) = field.rsplit_once(' ')?;
            let field = ExpectedField { name: name.into(), kind: kind.into(), comment: String::new() };
            Some((field, number.parse().ok()?))
        });
        fields.collect()
    }

    fn set_kind(&mut self, name: &str, declared: &ExpectedField, number: u32, kind: &str) {
        let Some(place) = self.find(name) else { return };
        let before = format!("  {} {} = {number};", declared.kind, declared.name);
        let lines = self.files.get_mut(&place.file).unwrap();
        for line in lines[place.first..place.last].iter_mut().filter(|line| **line == before) {
            *line = format!("  {kind} {} = {number};", declared.name);
        }
    }

    fn add_field(&mut self, name: &str, field: &ExpectedField) {
        let place = self.find(name).unwrap();
        let used = self.fields(name).iter().map(|(_, number)| *number).max().unwrap_or(0);
        let lines = self.files.get_mut(&place.file).unwrap();
        let reserved = lines[place.first..place.last].iter().filter_map(|line| {
            let numbers = line.trim().strip_prefix("reserved ")?.trim_end_matches(';');
            numbers.split(", ").filter_map(|number| number.parse::<u32>().ok()).max()
        });
        let number = used.max(reserved.max().unwrap_or(0)) + 1;
        let mut added = comment("  ", &field.comment);
        added.push(format!("  {} {} = {number};", field.kind, field.name));
        lines.splice(place.last..place.last, added);
    }
}

fn comment(indent: &str, text: &str) -> Vec<String> {
    text.lines().map(|line| format!("{indent}// {line}").trim_end().to_owned()).collect()
}
