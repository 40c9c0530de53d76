//! Recordings: written and read back, cut, damaged, foreign.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use testkit::TempDir;
use upcall_events::{Record, VERSION};

use super::known::KNOWN;
use super::scenario::{bytes, records};
use crate::recording::{Recorder, Recording};
use crate::source::{Polled, Source};

/// All records, and the end: its note, or the error.
fn read(bytes: &[u8]) -> (Vec<Record>, Result<Option<String>, String>) {
    let mut recording = Recording::new(Path::new("f"), bytes);
    let mut found = Vec::new();
    loop {
        match recording.next(Duration::ZERO) {
            Ok(Polled::Record(record)) => found.push(record),
            Ok(Polled::Nothing) => panic!("a file is never waited for"),
            Ok(Polled::End { note }) => return (found, Ok(note)),
            Err(error) => return (found, Err(error.to_string())),
        }
    }
}

#[test]
fn written_records_are_read_back() {
    let folder = TempDir::new("recording").unwrap();
    let path = folder.path().join("events");
    let mut recorder = Recorder::create(&path).unwrap();
    for record in records(KNOWN) {
        recorder.write(&record).unwrap();
    }
    recorder.flush().unwrap();
    let written = std::fs::read(&path).unwrap();
    assert!(written == bytes(KNOWN));
    assert_eq!(read(&written), (records(KNOWN), Ok(None)));
}

#[test]
fn a_cut_or_damaged_recording_gives_what_came_before() {
    let whole = bytes(KNOWN);
    let (all, events) = (records(KNOWN), |end: &[u8]| read(&[bytes(KNOWN).as_slice(), end].concat()));
    for length in 10..whole.len() {
        let (found, end) = read(&whole[..length]);
        assert_eq!(found, all[..found.len()]);
        let note = end.unwrap().expect("it is not whole");
        assert!(note.contains("f: cut off at byte") || note.contains("was not finished"), "{note}");
    }
    let (found, end) = events(&[0; 100]);
    assert_eq!(found, all);
    let expected = format!(
        "f: damaged at byte {}: a frame of impossible length; using the events before it",
        whole.len()
    );
    assert_eq!(end, Ok(Some(expected)));
}

#[test]
fn a_file_in_another_format_is_refused() {
    let mut newer = bytes(KNOWN);
    newer[8] = VERSION as u8 + 1;
    for (bytes, expected) in [
        (
            b"event = {'event': 1}".to_vec(),
            "f: not a recording of upcalls; `sluice upcall-cost --write-events FILE` makes one",
        ),
        (
            newer,
            "f: version 2 of the format; this program reads version 1; read it with the release that wrote it",
        ),
        (vec![], "f: empty, or cut off within its first bytes"),
        (vec![0x89, b'U'], "f: empty, or cut off within its first bytes"),
    ] {
        assert_eq!(read(&bytes), (vec![], Err(expected.into())));
    }
}

#[test]
fn a_full_disk_is_reported() {
    let path = Path::new("/dev/full");
    if !path.exists() {
        return;
    }
    let error = Recorder::create(path).err().expect("it is full");
    assert_eq!(error.to_string(), "/dev/full: cannot be written");
}

proptest! {
    #[test]
    fn a_changed_recording_is_read_or_refused(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..8)) {
        let mut bytes = bytes(KNOWN);
        for (place, byte) in changes {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        crate::fuzz::recording(&bytes);
    }
}

/// Small recordings, one case each; `UPDATE_CORPUS=1` rewrites them.
#[test]
fn corpus_of_recording() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/recording");
    let identical =
        "10 miss packet=A\n11 miss packet=A\n20 received thread=5 packet=A\n21 received thread=5 packet=A";
    let extreme = format!("0 miss id=1 packet=A\n{0} received id=1 thread=5\n{0} executed id=1", u64::MAX);
    let files = [
        ("alike", bytes(identical)),
        ("extreme_times", bytes(&extreme)),
        (
            "escape_in_name",
            bytes("port 1 \u{1b}[31mred\n10 miss id=1 port=1 packet=A\n20 received id=1 thread=5 port=1"),
        ),
        ("torn", bytes(KNOWN)[..200].to_vec()),
    ];
    for (name, bytes) in files {
        let path = format!("{folder}/{name}");
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}");
    }
    testkit::replay_corpus(folder, crate::fuzz::recording);
}
