//! Tests that need no machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::stream::{Stream, mark};
use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn command_lines() {
    let order =
        parse(&words("--cpus 1 --memory=512 --kernel 6.12 --write /a --write /b --timeout 9 -- a -- --b"));
    let expected = Options {
        cpus: 1,
        memory_mib: 512,
        kernel: "6.12".to_owned(),
        write: vec!["/a".into(), "/b".into()],
        timeout: Some(Duration::from_secs(9)),
        command: words("a -- --b"),
        ..Options::default()
    };
    assert_eq!(order, Ok(expected));
    assert_eq!(parse(&words("--accel tcg --verbose -- a")).unwrap().accel, Some(Accel::Tcg));
    for bad in [
        "",
        "--",
        "ls",
        "--cpus 1",
        "--cpus 0 -- a",
        "--cpus -- a",
        "--memory many -- a",
        "--timeout 0 -- a",
        "--kernel ../x -- a",
        "--kernel --x -- a",
        "--accel xen -- a",
        "--verbose=1 -- a",
        "--cpu 1 -- a",
    ] {
        assert!(parse(&words(bad)).is_err(), "{bad}");
    }
}

#[test]
fn an_output_ends_with_its_mark_however_it_is_cut() {
    let text = format!("one\0guest-end\0\0guest-end x 3\n{}17\nnever", mark("token"));
    for size in 1..text.len() {
        let mut stream = Stream::new("token");
        let (mut out, mut end) = (Vec::new(), None);
        for piece in text.as_bytes().chunks(size) {
            let (passed, status) = stream.push(piece);
            out.extend(passed);
            end = status;
            if end.is_some() {
                break;
            }
        }
        assert_eq!((out.as_slice(), end), (&b"one\0guest-end\0\0guest-end x 3\n"[..], Some(17)), "{size}");
    }
}

#[test]
fn an_output_without_its_mark_is_passed_on_whole() {
    let mut stream = Stream::new("token");
    let text = format!("one{}1", mark("token"));
    let (passed, status) = stream.push(text.as_bytes());
    assert_eq!((passed.as_slice(), status), (&b"one"[..], None));
    assert_eq!(stream.rest(), text.as_bytes()[3..]);
    for odd in ["1234\n", "x\n", "\n", "12345"] {
        assert_eq!(Stream::new("t").push(format!("{}{odd}", mark("t")).as_bytes()).1, Some(u8::MAX), "{odd}");
    }
}

#[test]
fn archives_are_read_by_others() {
    let mut archive = cpio::Archive::default();
    archive.folder("a");
    archive.file("a/b", b"hello");
    let bytes = archive.finish();
    // Headers of 110 bytes; header and name, and content, each padded to a multiple of four.
    assert_eq!(bytes.len(), 112 + (116 + 8) + 124);
    assert_eq!(&bytes[..22], b"070701\x30\x30\x30\x30\x30\x30\x30\x31\x30\x30\x30\x30\x34\x31\x65\x64");
    assert_eq!(&bytes[112 + 54..112 + 62], b"00000005", "the size");
    assert_eq!(&bytes[112 + 116..112 + 124], b"hello\0\0\0");
    assert_eq!(&bytes[236 + 110..], b"TRAILER!!!\0\0\0\0");
}

#[test]
fn kernels_are_chosen_by_package_or_version() {
    let names = [
        "linux-image-amd64",
        "linux-image-cloud-amd64",
        "linux-image-6.1.0-9-amd64",
        "linux-image-6.1.0-10-amd64",
        "linux-image-6.1.0-11-cloud-amd64",
        "linux-image-6.1.0-11-rt-amd64",
        "linux-image-6.12-amd64",
        "linux-image-6.12.9+deb12-amd64",
    ];
    for (wanted, package) in [
        ("linux-image-amd64", Some("linux-image-amd64")),
        ("6.1", Some("linux-image-6.1.0-10-amd64")),
        ("6.1.0", Some("linux-image-6.1.0-10-amd64")),
        ("6.1.0-9", Some("linux-image-6.1.0-9-amd64")),
        ("6.12", Some("linux-image-6.12-amd64")),
        ("6.12.9", Some("linux-image-6.12.9+deb12-amd64")),
        ("6.12.9+deb12", Some("linux-image-6.12.9+deb12-amd64")),
        ("6", Some("linux-image-6.12.9+deb12-amd64")),
        ("7", None),
        ("6.1.0-1", None),
        ("linux-image-7-amd64", None),
    ] {
        assert_eq!(kernel::choose(wanted, &names).as_deref(), package, "{wanted}");
    }
}

#[test]
fn the_packed_kernel_is_found_in_its_image() {
    let mut image = vec![0; 0x1000];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x1f1] = 2;
    image[0x248..0x24c].copy_from_slice(&8_u32.to_le_bytes());
    image[0x24c..0x250].copy_from_slice(&12_u32.to_le_bytes());
    image[0x608..0x610].copy_from_slice(b"a kernel");
    assert_eq!(kernel::payload(&image).unwrap(), b"a kernel");
    assert!(kernel::payload(&image[..0x610 - 1]).is_err());
    assert!(kernel::payload(&image[..0x100]).is_err());
    for (at, value) in [(0x202, 0_u32), (0x24c, 3), (0x248, u32::MAX), (0x24c, u32::MAX)] {
        let mut bad = image.clone();
        bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(kernel::payload(&bad).is_err(), "{at:#x}");
    }
}

#[test]
fn the_environment_is_chosen() {
    for (name, kept) in [
        ("PATH", true),
        ("CI", true),
        ("SLUICE_LONG", true),
        ("CARGO_TARGET_DIR", true),
        ("RUST_BACKTRACE", true),
        ("CARGO_MANIFEST_DIR", false),
        ("CARGO_PKG_NAME", false),
        ("SLUICE_A;reboot", false),
        ("TMPDIR", false),
        ("LD_LIBRARY_PATH", false),
    ] {
        assert_eq!(script::is_kept(name), kept, "{name}");
    }
}

#[test]
fn folders_that_the_guest_would_hide() {
    let paths = ["/tmp", "/tmp/a", "/run/user/0", "/running", "/work"].map(Path::new);
    assert_eq!(script::hidden(&paths), [PathBuf::from("/tmp/a"), PathBuf::from("/run/user/0")]);
}

fn job(command: &[&str], cwd: &str) -> script::Job {
    script::Job {
        command: command.iter().map(|&w| w.to_owned()).collect(),
        env: vec![("SLUICE_X".to_owned(), "it's $HOME".to_owned())],
        cwd: cwd.into(),
        seen: vec!["/tmp/a b".into(), "/tmp/c".into()],
        write: Vec::new(),
        modules: "/m".into(),
        release: "6.1".to_owned(),
    }
}

#[test]
fn scripts_mean_what_was_asked_for() {
    let sh = |script: &str| {
        let out = Command::new("sh").args(["-c", script]).output().unwrap();
        (String::from_utf8(out.stdout).unwrap(), out.status.code())
    };
    let job =
        job(&["sh", "-c", "echo \"$SLUICE_GUEST $SLUICE_X $PWD $1\"; exit 3", "sh", "a'b  c\nd"], "/usr");
    assert_eq!(sh(&job.script()), ("1 it's $HOME /usr a'b  c\nd\n".to_owned(), Some(3)));
    let vars =
        job.vars("guest-end x ") + "printf '%s|' \"$modules\" \"$release\" \"$seen\" \"$write\" \"$mark\"";
    assert_eq!(sh(&vars).0, "/m|6.1|/tmp/a b\n/tmp/c||guest-end x |");
    assert_eq!(sh(&self::job(&["true"], "/nonexistent").script()).1, Some(126));
    for text in [script::INIT, script::MAIN] {
        assert!(Command::new("sh").args(["-n", "-c", text]).status().unwrap().success());
    }
}
