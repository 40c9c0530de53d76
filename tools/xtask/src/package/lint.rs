//! Tests of the files in `packaging`, without a build.
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::{FILES, From, SETTINGS, manual_pages};
use super::{deb, output};

/// Limit of the exposure that systemd-analyze(1) reckons.
const EXPOSURE_MAX: f64 = 3.0;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn every_row_has_its_file() {
    for (to, from) in FILES {
        assert!(!to.starts_with('/'), "{to}");
        match from {
            From::Program | From::Link(_) => {}
            From::File(from) | From::Compressed(from) => assert!(root().join(from).is_file(), "{from}"),
        }
    }
    assert!(FILES.is_sorted_by_key(|(to, _)| *to));
    assert!(SETTINGS.iter().all(|path| path.starts_with("etc/") && FILES.iter().any(|(to, _)| to == path)));
    let pages = manual_pages(&root()).unwrap();
    for page in [
        "man1/sluice-ctl.1.gz",
        "man7/sluiced-commands.7.gz",
        "man8/sluiced.8.gz",
        "man5/sluiced.conf.db.5.gz",
    ] {
        assert!(pages.iter().any(|(to, _)| to.ends_with(page)), "{page}");
    }
    let spec = read("packaging/rpm/sluice.spec");
    for (to, _) in
        FILES.iter().filter(|(to, _)| to.starts_with("usr/lib/systemd") || to.starts_with("usr/sbin"))
    {
        assert!(spec.contains(&format!("\n/{to}\n")), "{to}");
    }
}

#[test]
fn scripts_are_shell() {
    for (name, mode) in deb::CONTROL.iter().filter(|(_, mode)| *mode == 0o755) {
        let path = root().join("packaging/deb").join(name);
        output(Command::new("sh").arg("-n").arg(&path)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{name} {mode:o}");
    }
}

/// Maintainer scripts cannot share a file: the functions of the exchange are in both.
#[test]
fn install_and_remove_exchange_the_daemon_alike() {
    let functions = |name: &str| {
        let text = read(&format!("packaging/deb/{name}"));
        let (_, text) = text.split_once("# Rules of bridges").unwrap();
        let (before, rest) = text.split_once("exchange_daemon() {\n").unwrap();
        format!("{before}{}", rest.split_once("\n}\n").unwrap().0)
    };
    assert_eq!(functions("postinst"), functions("prerm"));
}

/// Values of a key of the unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn the_unit_runs_the_installed_program_with_a_watchdog() {
    let unit = read("packaging/sluiced.service");
    assert_eq!((values(&unit, "Type"), values(&unit, "WatchdogSec")), (vec!["notify"], vec!["60"]));
    let starts = values(&unit, "ExecStart");
    let program = starts[0].split(' ').next().unwrap();
    assert!(starts.len() == 1 && FILES.iter().any(|(to, _)| program == format!("/{to}")), "{program}");
    // Readiness is reported by the process itself, which stays in front.
    assert!(!starts[0].contains("--detach") && !starts[0].contains("--monitor"));
}

#[test]
fn the_unit_exposes_little() {
    let unit = root().join("packaging/sluiced.service");
    let mut analyze = Command::new("systemd-analyze");
    let text = match output(analyze.args(["security", "--offline=true", "--no-pager"]).arg(&unit)) {
        Ok(text) => text,
        Err(why) => {
            eprintln!("SKIP: the_unit_exposes_little: no systemd-analyze with --offline: {why:#}");
            assert!(std::env::var_os("SLUICE_NO_SKIP").is_none_or(|v| v != "1"));
            return;
        }
    };
    let level =
        text.lines().find_map(|line| line.split_once("exposure level for sluiced.service: ")).unwrap().1;
    let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
    assert!(level <= EXPOSURE_MAX, "{level}\n{text}");
}
