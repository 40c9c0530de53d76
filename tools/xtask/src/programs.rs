//! The test programs of the workspace, as cargo builds them; on request with clippy as the compiler, so that one
//! compilation gives programs and lints.

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
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

/// Names the compiler of the workspace's own packages for cargo: `clippy-driver` compiles and lints.
const WRAPPER: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");

/// The compiler of a build. Programs of the two have names of their own, and neither build makes the other stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// rustc, as `cargo test` alone has it.
    Rustc,
    /// rustc with clippy's lints.
    Clippy,
}

impl Compiler {
    /// Has a command of cargo use it.
    pub(crate) fn give(self, command: &mut Command) {
        match self {
            Compiler::Rustc => {}
            Compiler::Clippy => drop(command.env(WRAPPER.0, WRAPPER.1)),
        }
    }
}

/// A build of all tests.
#[derive(Debug)]
pub(crate) struct Build {
    /// The programs.
    pub(crate) programs: Vec<Built>,
    /// Warnings and errors of the compiler, rendered; each once.
    pub(crate) diagnostics: Vec<String>,
    /// False if a program was not built.
    pub(crate) complete: bool,
    /// Cargo's messages.
    messages: String,
}

impl Build {
    fn of(messages: String, complete: bool) -> Build {
        Build { programs: built(&messages), diagnostics: diagnostics(&messages), complete, messages }
    }

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
/// If cargo cannot be run.
pub(crate) fn build(root: &Path, profile: &str, compiler: Compiler) -> Result<Build> {
    if let Some(path) = std::env::var_os(MESSAGES) {
        let messages = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", Path::new(&path).display()))?;
        return Ok(Build::of(messages, true));
    }
    let format = match std::io::stderr().is_terminal() {
        true => "--message-format=json-diagnostic-rendered-ansi",
        false => "--message-format=json",
    };
    let mut command = Command::new(cargo());
    command.args(["test", "--locked", "--workspace", "--no-run", format]);
    command.args(["--profile", profile]).current_dir(root).stderr(Stdio::inherit());
    compiler.give(&mut command);
    let out = command.output().context("cannot run cargo")?;
    Ok(Build::of(String::from_utf8_lossy(&out.stdout).into_owned(), out.status.success()))
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

/// Errors, and warnings of lints, among cargo's messages. A library and its tests may have equal ones. Messages of the
/// linker depend on the machine.
fn diagnostics(messages: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let text = |at: &str| message.pointer(at).and_then(Value::as_str);
        let code = text("/message/code/code").filter(|code| *code != "linker_messages");
        let counts = match text("/message/level") {
            Some("warning") => code.is_some(),
            level => level.is_some_and(|level| level.starts_with("error")),
        };
        if let (true, Some(rendered)) = (counts, text("/message/rendered"))
            && !all.iter().any(|known| known == rendered)
        {
            all.push(rendered.to_owned());
        }
    }
    all
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

    #[test]
    fn diagnostics_are_errors_and_lints() {
        let message = |level: &str, code: &str, text: &str| {
            let code = if code.is_empty() { Value::Null } else { serde_json::json!({ "code": code }) };
            let inner = serde_json::json!({ "level": level, "code": code, "rendered": text });
            serde_json::json!({ "reason": "compiler-message", "message": inner }).to_string()
        };
        let messages = [
            message("warning", "clippy::needless_return", "a"),
            message("warning", "clippy::needless_return", "a"),
            message("warning", "", "2 warnings emitted"),
            message("warning", "linker_messages", "b"),
            message("note", "", "c"),
            message("error", "", "d"),
            message("error: internal compiler error", "", "e"),
        ];
        assert_eq!(diagnostics(&messages.join("\n")), ["a", "d", "e"]);
        assert!(diagnostics(MESSAGES).is_empty());
    }

    #[test]
    fn clippy_compiles_the_packages_of_the_workspace() {
        let wrapper = |compiler: Compiler| {
            let mut command = Command::new("cargo");
            compiler.give(&mut command);
            command
                .get_envs()
                .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
                .collect::<Vec<_>>()
        };
        assert!(wrapper(Compiler::Rustc).is_empty());
        assert_eq!(wrapper(Compiler::Clippy), [(WRAPPER.0.into(), Some(WRAPPER.1.into()))]);
    }
}
