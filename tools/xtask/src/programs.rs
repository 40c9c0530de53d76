//! The test programs of the workspace, as cargo builds them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace::cargo;

/// A test program that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Built {
    /// Folder name of its package.
    pub(crate) package: String,
    /// Name of the target: of a file or folder in `tests`, of the library or of the program.
    pub(crate) target: String,
    /// Path of the program.
    pub(crate) program: String,
    /// The folder of its package, the working directory of its tests.
    pub(crate) dir: String,
}

/// Names a file with the messages of a build, for a stage that runs beside the tests: it need not wait for cargo's lock.
const MESSAGES: &str = "SLUICE_TESTS_BUILT";

/// A build of all tests.
pub(crate) struct Build {
    /// The programs.
    pub(crate) programs: Vec<Built>,
    /// Cargo's messages.
    messages: String,
}

impl Build {
    /// Gives a stage of this program the build, by the file `messages.json` in `folder`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn give(&self, command: &mut Command, folder: &Path) -> Result<()> {
        let path = folder.join("messages.json");
        std::fs::write(&path, &self.messages).with_context(|| format!("cannot write {}", path.display()))?;
        command.env(MESSAGES, path);
        Ok(())
    }
}

/// Builds all tests of the workspace with cargo's `profile`; takes a build that the caller of this program has given.
///
/// # Errors
/// If cargo cannot be run, or a test does not build.
pub(crate) fn build(root: &Path, profile: &str) -> Result<Build> {
    if let Some(path) = std::env::var_os(MESSAGES) {
        let messages = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", Path::new(&path).display()))?;
        return Ok(Build { programs: built(&messages), messages });
    }
    let out = Command::new(cargo())
        .args(["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .args(["--profile", profile])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(out.status.success(), "the tests do not build");
    let messages = String::from_utf8_lossy(&out.stdout).into_owned();
    Ok(Build { programs: built(&messages), messages })
}

/// The test programs among cargo's messages.
fn built(messages: &str) -> Vec<Built> {
    let program = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let text = |at: &str| message.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
        let dir = Path::new(&text("/manifest_path")?).parent()?.to_path_buf();
        is_test.then_some(())?;
        Some(Built {
            package: dir.file_name()?.to_string_lossy().into_owned(),
            target: text("/target/name")?,
            program: text("/executable")?,
            dir: dir.to_string_lossy().into_owned(),
        })
    };
    messages.lines().filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"name":"net"},"profile":{"test":false},"executable":"/w/no"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"name":"net"},"profile":{"test":true},"executable":"/w/net-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/b/Cargo.toml","target":{"name":"net"},"profile":{"test":true},"executable":null}
no json
{"reason":"build-finished","success":true}"#;

    #[test]
    fn programs_are_found_among_messages() {
        let net = Built {
            package: "a".to_owned(),
            target: "net".to_owned(),
            program: "/w/net-1".to_owned(),
            dir: "/w/crates/a".to_owned(),
        };
        assert_eq!(built(MESSAGES), [net]);
    }
}
