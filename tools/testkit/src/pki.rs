//! Keys and certificates by the stock `ovs-pki`.

use std::path::PathBuf;

use anyhow::Result;

use crate::{Cmd, TempDir};

/// Authorities for switches and for controllers, and the keys and certificates that they issue.
#[derive(Debug)]
pub struct Pki {
    dir: TempDir,
}

impl Pki {
    /// Creates both authorities, and the key and certificate `sw` of a switch and `ctl` of a controller.
    ///
    /// # Errors
    /// `ovs-pki` or `openssl` is missing, or fails.
    pub fn new() -> Result<Pki> {
        let pki = Pki { dir: TempDir::new("pki")? };
        pki.run(&["init"])?;
        pki.issue("sw", "switch")?;
        pki.issue("ctl", "controller")?;
        Ok(pki)
    }

    fn run(&self, words: &[&str]) -> Result<()> {
        let path = |name: &str| self.path(name).display().to_string();
        // It works in the current directory.
        let script = r#"cd "$0" && exec ovs-pki "$@" "#;
        let options = [format!("--dir={}", path("pki")), format!("--log={}", path("log"))];
        Cmd::new("sh").args(["-c", script, &path("")]).args(words).args(options).run().map(drop)
    }

    /// Creates a key and its certificate by the authority for `switch` or `controller`. An earlier pair of this name is
    /// replaced.
    ///
    /// # Errors
    /// As [`Pki::new`].
    pub fn issue(&self, name: &str, authority: &str) -> Result<()> {
        for part in ["privkey", "req", "cert"] {
            // There may be none.
            let _ = std::fs::remove_file(self.path(&format!("{name}-{part}.pem")));
        }
        self.run(&["req+sign", name, authority])
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The certificate of the authority for `switch` or `controller`.
    pub fn ca(&self, authority: &str) -> String {
        self.path(&format!("pki/{authority}ca/cacert.pem")).display().to_string()
    }

    /// Private key and certificate of this name.
    pub fn pair(&self, name: &str) -> [String; 2] {
        ["privkey", "cert"].map(|part| self.path(&format!("{name}-{part}.pem")).display().to_string())
    }

    /// Options of the stock tools: key and certificate of this name, and trust in an authority.
    pub fn options(&self, name: &str, authority: &str) -> [String; 3] {
        let [key, cert] = self.pair(name);
        let ca = self.ca(authority);
        [format!("--private-key={key}"), format!("--certificate={cert}"), format!("--ca-cert={ca}")]
    }
}
