use std::process::Command;

crate::usdt! {
    /// With arguments.
    probe some = "sys_test", "some", (first, second, third);
    /// Without.
    probe none = "sys_test", "none", ();
}

/// The lines of `readelf -n` about a probe of this test program, after its name.
fn note(name: &str) -> Option<String> {
    let exe = std::env::current_exe().unwrap();
    let out = Command::new("readelf").args(["-n", "-W"]).arg(exe).output().ok()?;
    let text = String::from_utf8(out.stdout).unwrap();
    let notes = text
        .split("Provider: ")
        .find(|n| n.starts_with("sys_test") && n.contains(&format!("Name: {name}\n")))?;
    Some(notes.to_string())
}

#[test]
fn probes_are_noted_and_do_nothing_while_nobody_is_attached() {
    assert!(!some::armed() && !none::armed());
    some::fire(1, 2, 3);
    none::fire();
    if cfg!(not(target_arch = "x86_64")) || Command::new("readelf").arg("-v").output().is_err() {
        return;
    }
    let (some, none) = (note("some").unwrap(), note("none").unwrap());
    assert_eq!(some.matches("8@%r").count(), 3, "{some}");
    assert_eq!(none.matches("8@%r").count(), 0, "{none}");
    for note in [some, none] {
        let place = |what: &str| {
            let hex = note.split(&format!("{what}: 0x")).nth(1).unwrap();
            u64::from_str_radix(hex.split([',', '\n']).next().unwrap().trim(), 16).unwrap()
        };
        assert!(place("Location") != 0 && place("Base") != 0 && place("Semaphore") != 0, "{note}");
    }
}
