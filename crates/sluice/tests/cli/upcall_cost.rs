//! `sluice upcall-cost` alone: recordings of the repository analysed, compared, exported and rejected, and a
//! daemon that dies.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use testkit::{Cmd, Output, Signal, TempDir, wait_for};

/// A recording with known statistics (see `upcall-cost`).
const KNOWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../upcall-cost/corpus/recording/known");
/// Maximum time of a call on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn program(run_dir: &Path, args: &[&str]) -> Cmd {
    let program = Cmd::new(env!("CARGO_BIN_EXE_sluice")).arg("upcall-cost").args(args.iter().copied());
    program.env("OVS_RUNDIR", run_dir).limit(LIMIT)
}

fn run(run_dir: &Path, args: &[&str]) -> Output {
    program(run_dir, args).output().unwrap()
}

fn ok(args: &[&str]) -> String {
    let output = run(Path::new("/nonexistent"), args);
    assert!(output.status.success(), "{}", output.stderr);
    output.stdout
}

fn refused(args: &[&str]) -> String {
    let output = run(Path::new("/nonexistent"), args);
    assert!(!output.status.success(), "{}", output.stdout);
    output.stderr
}

#[test]
fn the_known_recording_gives_the_same_report() {
    let shown = ok(&["--quiet", "--histogram-buckets=4", "--read-events", KNOWN]);
    let expected = include_str!("upcall_cost.txt");
    for (line, expected) in shown.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(shown.lines().count(), expected.lines().count());
}

#[test]
fn events_are_listed_filtered_and_stopped_at() {
    let listed = ok(&["-r", KNOWN]);
    let first: Vec<&str> = listed.lines().take(2).collect();
    assert!(first[0].starts_with("TIME") && first[1] == "port 1 is veth1", "{first:?}");
    assert!(listed.contains("received      handler1"), "{listed}");
    assert!(!ok(&["-q", "-r", KNOWN]).contains("TIME"));
    let of = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&ok(&[&["--json", "-r", KNOWN], args].concat())).unwrap()
    };
    assert_eq!(of(&["--handler-filter", "handler2,other"])["figures"]["total"]["count"], 2);
    assert_eq!(of(&["--handler-filter", "handler[12]"])["figures"]["total"]["count"], 4);
    assert_eq!(of(&["--stop", "5"])["events"]["received"]["total"], 1);
}

#[test]
fn other_forms_are_written() {
    let folder = TempDir::new("cost").unwrap();
    let [csv, svg] = ["sets.csv", "figure.svg"].map(|name| folder.path().join(name).display().to_string());
    let shown = ok(&["-q", "-r", KNOWN, "--sets", "--csv", &csv, "--plot", &svg]);
    assert!(shown.starts_with("Matched sets"), "{shown}");
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 6);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("total: miss to executed"));
    assert!(ok(&["--summary", "-r", KNOWN]).lines().count() <= 12);
    let compared = ok(&["-r", KNOWN, "--compare", KNOWN]);
    assert!(compared.starts_with("Comparison") && compared.contains("1.000"), "{compared}");
    let json: serde_json::Value = serde_json::from_str(&ok(&["--json", "--compare", KNOWN, KNOWN])).unwrap();
    assert_eq!(json["recordings"].as_array().unwrap().len(), 2);
}

#[test]
fn invalid_input_is_rejected_with_a_reason() {
    let folder = TempDir::new("cost").unwrap();
    let foreign = folder.path().join("foreign").display().to_string();
    std::fs::write(&foreign, "dp_port_map = {}\n").unwrap();
    for (args, expected) in [
        (vec!["-r", foreign.as_str()], "not a recording of upcalls"),
        (vec!["-r", "/nonexistent/x"], "/nonexistent/x: cannot be read: No such file"),
        (vec!["-r", KNOWN, "-w", "x"], "cannot be used with"),
        (vec!["-r", KNOWN, "--plot", "x.pdf"], "ends in .svg or .png"),
        (vec!["-r", KNOWN, "--handler-filter", "("], "not a pattern"),
        (vec!["-r", KNOWN, "--csv", "/nonexistent/x"], "/nonexistent/x: cannot be created"),
        (vec!["-P", "3"], "3 is not in 64..=2048"),
        (vec!["--duration", "never"], "not a time such as 500ms or 10s"),
        (
            vec!["--source", "ring", "--duration", "1s"],
            "no switch found: no daemon answers on /nonexistent/sluiced.*.events",
        ),
        (vec!["--source", "ring", "--pid", "1"], "process 1 has no event socket there"),
    ] {
        let told = refused(&args);
        assert!(told.contains(expected), "{args:?}: {told}");
    }
}

#[test]
fn a_switch_that_dies_leaves_a_recording() {
    let folder = TempDir::new("cost").unwrap();
    let whole = std::fs::read(KNOWN).unwrap();
    let listener = UnixListener::bind(folder.path().join("sluiced.77.events")).unwrap();
    let cut = whole.len() - 30;
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request).unwrap();
        stream.write_all(&whole[..cut]).unwrap();
        request
    });
    let path = folder.path().join("events").display().to_string();
    let output = run(folder.path(), &["--source", "ring", "-q", "-w", &path, "-P", "128", "-f", "0"]);
    assert!(output.status.success(), "{}", output.stderr);
    assert!(output.stdout.contains("the switch ended or died while it was traced"), "{}", output.stdout);
    assert!(output.stdout.contains("Cost of upcalls"), "{}", output.stdout);
    assert_eq!(daemon.join().unwrap(), "snap=128 key=0 stages=all\n");
    let again = ok(&["-q", "-r", &path]);
    assert!(again.contains("the recording was not finished"), "{again}");
    let cost = |text: &str| text[text.find("Cost of upcalls").unwrap()..].to_owned();
    assert_eq!(cost(&again), cost(&output.stdout));
}

#[test]
fn an_interrupt_ends_the_trace_and_prints_the_report() {
    let folder = TempDir::new("cost").unwrap();
    let mut whole = std::fs::read(KNOWN).unwrap();
    // All but the end record, which is a frame of two bytes.
    whole.truncate(whole.len() - 2);
    let expected = whole.len() as u64;
    let listener = UnixListener::bind(folder.path().join("sluiced.77.events")).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream.write_all(&whole).unwrap();
        // Until the tracer exits.
        let _gone = stream.read(&mut [0; 1]);
    });
    let path = folder.path().join("events");
    let record = path.display().to_string();
    let mut tracer = program(folder.path(), &["--source", "ring", "-q", "-w", &record]).spawn().unwrap();
    wait_for(LIMIT, "the recording", || std::fs::metadata(&path).is_ok_and(|file| file.len() == expected))
        .unwrap();
    tracer.signal(Signal::INT).unwrap();
    let output = tracer.wait(LIMIT).unwrap();
    assert!(output.status.success(), "{}", output.stderr);
    assert!(output.stdout.contains("Cost of upcalls"), "{}", output.stdout);
    daemon.join().unwrap();
    // An orderly exit: the end is recorded.
    assert!(std::fs::read(&path).unwrap() == std::fs::read(KNOWN).unwrap());
}
