//! `scripts/setup.sh` with small scripts in place of the system's programs: nothing is installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder deleted after the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("xtask-setup-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// On a bare machine, both required and optional packages are installed, one after the other: the second run
/// does not wait for the lock of the first.
#[test]
fn a_bare_machine_is_set_up_in_one_run() {
    let dir = Folder::new();
    let log = dir.0.join("log");
    dir.program("dpkg-query", "exit 1");
    dir.program("id", "echo 0");
    dir.program("systemctl", "exit 0");
    dir.program("apt-get", &format!("echo \"$@\" >>{}", log.display()));
    let path = format!("{}:{}", dir.0.display(), std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup.sh");
    let done = Command::new("timeout")
        .args(["120", "bash"])
        .arg(script)
        .arg("bench")
        .env("PATH", path)
        .env("POLICY_RC_D", dir.0.join("policy-rc.d"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    let asked = fs::read_to_string(&log).unwrap();
    let installs: Vec<&str> = asked.lines().filter(|l| l.contains(" install ")).collect();
    assert_eq!(installs.len(), 2, "{asked}\n{told}");
    assert!(
        installs[0].contains("openvswitch-switch") && installs[1].contains("openvswitch-switch-dpdk"),
        "{asked}"
    );
    assert!(!dir.0.join("policy-rc.d").exists(), "the policy was left behind");
}
