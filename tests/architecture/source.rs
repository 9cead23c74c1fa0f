//! Reads Rust files far enough to know which paths they use and what they define.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A file, and its text without comments and the content of literals. Lines stay where they are.
pub struct Source {
    /// From the root of the repository.
    pub path: String,
    pub code: String,
}

/// A path such as `crate::k8s::queue::Queue`, as it is written in a `use` or inline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedPath {
    pub segments: Vec<String>,
    pub line: usize,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), code: without_comments_and_literals(text) }
    }

    /// The crate's name for `src`, and the path of the module in it: `src/k8s/queue.rs` is `k8s::queue`.
    pub fn module(&self) -> Vec<String> {
        let (_, inner) = self.path.split_once("src/").unwrap_or(("", &self.path));
        let mut parts: Vec<_> =
            inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
            parts.pop();
        }
        parts
    }

    /// The same file without its items for tests, and the modules that are compiled for tests only.
    pub fn shipped(&self) -> (Self, Vec<Vec<String>>) {
        let mut code = self.code.clone();
        let mut test_modules = Vec::new();
        let mut from = 0;
        while let Some(start) = code[from..].find("#[cfg(test)]").map(|at| from + at) {
            let end = end_of_item(&code, start);
            let item = &code[start..end];
            if let Some((_, name)) = item.trim_end_matches(';').rsplit_once("mod ") {
                let mut module = self.module();
                module.push(name.trim().to_owned());
                test_modules.push(module);
            }
            let blank: String = item.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            code.replace_range(start..end, &blank);
            from = start + blank.len();
        }
        (Self { path: self.path.clone(), code }, test_modules)
    }

    /// All paths of two segments or more, those of `use` trees in full.
    pub fn used_paths(&self) -> Vec<UsedPath> {
        let tokens = tokens(&self.code);
        let mut paths = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at].text == "use" {
                at = use_tree(&tokens, at + 1, &[], &mut paths);
            } else if is_name(tokens[at].text) {
                at = inline_path(&tokens, at, &mut paths);
            } else {
                at += 1;
            }
        }
        paths.retain(|path| path.segments.len() > 1);
        paths.iter().map(|path| self.absolute(path)).collect()
    }

    /// With `super` and `self` replaced by what they stand for.
    fn absolute(&self, path: &UsedPath) -> UsedPath {
        let mut segments = path.segments.clone();
        if matches!(segments[0].as_str(), "self" | "super") {
            let mut module = self.module();
            while let Some(first) = segments.first().cloned() {
                match first.as_str() {
                    "self" => {}
                    "super" => drop(module.pop()),
                    _ => break,
                }
                segments.remove(0);
            }
            segments = [vec!["crate".to_owned()], module, segments].concat();
        }
        UsedPath { segments, line: path.line }
    }
}

/// Every Rust file under these folders.
pub fn read_all(folders: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeSet::new();
    folders.iter().for_each(|folder| collect(&root.join(folder), &mut files));
    let source = |file: &PathBuf| {
        let path = file.strip_prefix(root).expect("below the root");
        Source::new(&path.to_string_lossy(), &fs::read_to_string(file).expect("readable"))
    };
    files.iter().map(source).collect()
}

fn collect(folder: &Path, files: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("readable").path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(path);
        }
    }
}

fn without_comments_and_literals(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let starts = |at: usize, what: &str| {
        what.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c))
    };
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let before_is_name = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
        let end = if starts(at, "//") {
            (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len())
        } else if starts(at, "/*") {
            (at + 2..chars.len()).find(|&i| starts(i, "*/")).map_or(chars.len(), |i| i + 2)
        } else if !before_is_name && (starts(at, "r\"") || starts(at, "r#")) {
            let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
            if chars.get(at + 1 + hashes) == Some(&'"') {
                let close = format!("\"{}", "#".repeat(hashes));
                (at + 2 + hashes..chars.len())
                    .find(|&i| starts(i, &close))
                    .map_or(chars.len(), |i| i + close.len())
            } else {
                at // A raw name such as `r#type`.
            }
        } else if chars[at] == '"' {
            let mut i = at + 1;
            while i < chars.len() && chars[i] != '"' {
                i += if chars[i] == '\\' { 2 } else { 1 };
            }
            i + 1
        } else if starts(at, "'\\") {
            (at + 3..chars.len()).find(|&i| chars[i] == '\'').map_or(chars.len(), |i| i + 1)
        } else if chars[at] == '\'' && chars.get(at + 2) == Some(&'\'') {
            at + 3
        } else {
            at
        };
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            let end = end.min(chars.len());
            code.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// The end of the item that begins here with an attribute: its block, or its semicolon.
fn end_of_item(code: &str, start: usize) -> usize {
    let is_use = code[start..].trim_start_matches("#[cfg(test)]").trim_start().starts_with("use ");
    let mut depth = 0;
    for (at, c) in code[start..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 && (c == ';' || c == '}' && !is_use) {
            return start + at + 1;
        }
    }
    code.len()
}

struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Names, `::`, and single characters; no spaces.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (code, 1);
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(Token { text: &rest[..length], line });
        }
        line += usize::from(first == '\n');
        rest = &rest[length..];
    }
    tokens
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads one branch of a `use` tree; answers where it ends.
fn use_tree(
    tokens: &[Token<'_>],
    mut at: usize,
    before: &[String],
    paths: &mut Vec<UsedPath>,
) -> usize {
    let mut segments = before.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.text {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token.text != "}") {
                    at = use_tree(tokens, at, &segments, paths);
                    at += usize::from(tokens.get(at).is_some_and(|token| token.text == ","));
                }
                return at + 1;
            }
            // `as` and the alias.
            "as" => at += 2,
            "self" if !segments.is_empty() => at += 1,
            "*" => at += 1,
            name if is_name(name) => {
                segments.push(name.to_owned());
                at += 1;
            }
            _ => break,
        }
    }
    let line = tokens.get(at.saturating_sub(1)).map_or(0, |token| token.line);
    paths.push(UsedPath { segments, line });
    at
}

fn inline_path(tokens: &[Token<'_>], mut at: usize, paths: &mut Vec<UsedPath>) -> usize {
    let line = tokens[at].line;
    let mut segments = vec![tokens[at].text.to_owned()];
    while tokens.get(at + 1).is_some_and(|token| token.text == "::")
        && let Some(next) = tokens.get(at + 2).filter(|token| is_name(token.text))
    {
        segments.push(next.text.to_owned());
        at += 2;
    }
    paths.push(UsedPath { segments, line });
    at + 1
}
