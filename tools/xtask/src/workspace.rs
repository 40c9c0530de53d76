//! Input of the checks: the workspace's packages, from `cargo metadata`, and their source files.
//!
//! Invariants: paths are relative to the workspace root, with `/`; the order of packages and files is fixed,
//! so that output is reproducible. Read-only.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Kind of a dependency between workspace packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DepKind {
    /// `[dependencies]`.
    Normal,
    /// `[build-dependencies]`.
    Build,
    /// `[dev-dependencies]`.
    Dev,
}

/// One dependency of a workspace package.
#[derive(Clone, Debug)]
pub(crate) struct Dep {
    /// Package name (not the name it may be renamed to).
    pub(crate) name: String,
    /// Its table in the manifest.
    pub(crate) kind: DepKind,
}

/// One package of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Package name.
    pub(crate) name: String,
    /// Folder of its manifest, relative to the workspace root.
    pub(crate) dir: String,
    /// Root files of its libraries and binaries, relative to the workspace root.
    pub(crate) roots: Vec<String>,
    /// All dependencies, workspace packages and libraries.
    pub(crate) deps: Vec<Dep>,
}

/// One `.rs` file and the package that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct RustFile {
    /// Package name.
    pub(crate) package: String,
    /// Path relative to the workspace root.
    pub(crate) path: String,
    /// Whole text.
    pub(crate) text: String,
}

/// The workspace as the checks see it.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Absolute path of the workspace root.
    pub(crate) root: PathBuf,
    /// Packages by name.
    pub(crate) members: Vec<Member>,
}

/// The cargo that runs us, or the one on the path.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Cargo's target folder, absolute.
///
/// # Errors
/// If the working directory is gone.
pub(crate) fn target(root: &Path) -> Result<PathBuf> {
    absolute(&std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from))
}

/// The absolute form of a path.
///
/// # Errors
/// If the working directory is gone.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("no folder: `{}`", path.display()))
}

/// Runs `cargo metadata` with extra arguments and parses its output.
///
/// # Errors
/// If cargo cannot be run, fails (for instance because Cargo.lock is outdated), or prints no JSON.
pub(crate) fn metadata(root: &Path, more: &[&str]) -> Result<Value> {
    let out = Command::new(cargo())
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(more)
        .current_dir(root)
        .output()
        .context("cannot run `cargo metadata`")?;
    if !out.status.success() {
        bail!("`cargo metadata` failed:\n{}", String::from_utf8_lossy(&out.stderr));
    }
    serde_json::from_slice(&out.stdout).context("`cargo metadata` printed no valid JSON")
}

impl Workspace {
    /// Reads the workspace that `root` is the root of.
    ///
    /// # Errors
    /// If `cargo metadata` fails or violates its format version 1.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let members = parse_members(&metadata(root, &["--no-deps"])?)?;
        Ok(Self { root: root.to_owned(), members })
    }

    /// Path and text of every Markdown file, those of nested packages included, by path.
    ///
    /// # Errors
    /// If a folder or file cannot be read.
    pub(crate) fn markdown_files(&self) -> Result<Vec<(String, String)>> {
        let mut paths = Vec::new();
        walk(&self.root, "md", true, &mut paths)?;
        paths.sort();
        let read = |path: PathBuf| {
            let text = std::fs::read_to_string(&path);
            Ok((
                relative(&self.root, &path)?,
                text.with_context(|| format!("cannot read {}", path.display()))?,
            ))
        };
        paths.into_iter().map(read).collect()
    }

    /// Every `.rs` file of every member, by package and path.
    ///
    /// # Errors
    /// If a folder or file cannot be read.
    pub(crate) fn rust_files(&self) -> Result<Vec<RustFile>> {
        let mut files = Vec::new();
        for member in &self.members {
            let mut paths = Vec::new();
            walk(&self.root.join(&member.dir), "rs", false, &mut paths)?;
            paths.sort();
            for path in paths {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let path = relative(&self.root, &path)?;
                files.push(RustFile { package: member.name.clone(), path, text });
            }
        }
        Ok(files)
    }
}

/// Picks the members out of the answer of `cargo metadata`.
///
/// # Errors
/// If a field is missing.
pub(crate) fn parse_members(meta: &Value) -> Result<Vec<Member>> {
    let root = PathBuf::from(text(meta, "workspace_root")?);
    let mut members = Vec::new();
    for package in list(meta, "packages")? {
        let manifest = PathBuf::from(text(package, "manifest_path")?);
        let dir = manifest.parent().context("a manifest path without a folder")?;
        let mut roots = Vec::new();
        for target in list(package, "targets")? {
            let kinds = list(target, "kind")?;
            if kinds.iter().any(|k| matches!(k.as_str(), Some("lib" | "bin" | "proc-macro"))) {
                roots.push(relative(&root, Path::new(text(target, "src_path")?))?);
            }
        }
        let mut deps = Vec::new();
        for dep in list(package, "dependencies")? {
            let kind = match dep.get("kind").and_then(Value::as_str) {
                None => DepKind::Normal,
                Some("build") => DepKind::Build,
                Some("dev") => DepKind::Dev,
                Some(other) => bail!("`cargo metadata` names an unknown kind of dependency: {other}"),
            };
            deps.push(Dep { name: text(dep, "name")?.to_owned(), kind });
        }
        members.push(Member {
            name: text(package, "name")?.to_owned(),
            dir: relative(&root, dir)?,
            roots,
            deps,
        });
    }
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

/// A string field of a JSON object.
///
/// # Errors
/// If there is none of that name.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).with_context(|| format!("no text `{key}` in cargo's metadata"))
}

/// An array field of a JSON object.
///
/// # Errors
/// If there is none of that name.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value.get(key).and_then(Value::as_array).with_context(|| format!("no list `{key}` in cargo's metadata"))
}

fn relative(root: &Path, path: &Path) -> Result<String> {
    let inner = path.strip_prefix(root).with_context(|| {
        format!("{} lies outside the workspace {}: members belong inside it", path.display(), root.display())
    })?;
    Ok(inner.to_string_lossy().replace('\\', "/"))
}

/// Collects files of an extension, outside of hidden folders and `target`; `nested`: also those of packages below `dir`.
fn walk(dir: &Path, extension: &str, nested: bool, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            // A nested folder with a manifest is a separate package.
            if name != "target" && !name.starts_with('.') && (nested || !path.join("Cargo.toml").exists()) {
                walk(&path, extension, nested, found)?;
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    Ok(())
}
