//! Input of the guest: the variables of `init.sh`, and the command as a script.
//!
//! Everything is quoted for a POSIX shell; names of variables are validated, because they cannot be quoted.

use std::path::{Path, PathBuf};

/// The first process of the guest.
pub(super) const INIT: &str = include_str!("init.sh");

/// The continuation of that process in its new root.
pub(super) const MAIN: &str = include_str!("main.sh");

/// Parameters of the guest's command.
#[derive(Debug)]
pub(super) struct Job {
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Its environment, beyond the common one.
    pub(super) env: Vec<(String, String)>,
    /// Its working directory.
    pub(super) cwd: PathBuf,
    /// Folders below /tmp and /run that stay visible.
    pub(super) seen: Vec<PathBuf>,
    /// Folders that may be changed.
    pub(super) write: Vec<PathBuf>,
    /// The host's folder of the kernel's modules.
    pub(super) modules: PathBuf,
    /// The kernel's release.
    pub(super) release: String,
}

/// Whether to keep a variable of the caller's environment. Cargo's variables about the package of this
/// program are dropped.
pub(super) fn is_kept(name: &str) -> bool {
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let about_us = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    let all = ["PATH", "HOME", "USER", "LANG", "CI", "TERM", "CARGO", "RUSTC", "RUSTFLAGS"];
    let parts = ["SLUICE_", "CARGO_", "RUST_", "RUSTUP_", "LC_", "OVS_", "PROPTEST_"];
    fits && !about_us.iter().any(|p| name.starts_with(p))
        && (all.contains(&name) || parts.iter().any(|p| name.starts_with(p)))
}

/// The paths of `paths` that /tmp and /run of the guest would hide.
pub(super) fn hidden(paths: &[&Path]) -> Vec<PathBuf> {
    let roots = [Path::new("/tmp"), Path::new("/run")];
    let below = |path: &&Path| roots.iter().any(|root| path.starts_with(root) && path != root);
    paths.iter().copied().filter(below).map(Path::to_owned).collect()
}

/// A word, quoted.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Job {
    /// The variables of `init.sh`; `mark` ends an output, without its first byte.
    pub(super) fn vars(&self, mark: &str) -> String {
        let lines = |paths: &[PathBuf]| {
            let paths: Vec<_> = paths.iter().map(|p| p.to_string_lossy()).collect();
            quote(&paths.join("\n"))
        };
        format!(
            "modules={}\nrelease={}\nseen={}\nwrite={}\nmark={}\n",
            quote(&self.modules.to_string_lossy()),
            quote(&self.release),
            lines(&self.seen),
            lines(&self.write),
            quote(mark),
        )
    }

    /// The command as a script.
    pub(super) fn script(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.env.iter().chain([&("SLUICE_GUEST".to_owned(), "1".to_owned())]) {
            text += &format!("export {name}={}\n", quote(value));
        }
        text += &format!("cd {} || exit 126\n", quote(&self.cwd.to_string_lossy()));
        let words: Vec<String> = self.command.iter().map(|w| quote(w)).collect();
        text + &format!("exec {}\n", words.join(" "))
    }
}
