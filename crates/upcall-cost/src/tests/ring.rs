//! The client of the daemon's event socket, against fake daemons in threads.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::TempDir;
use upcall_events::Record;

use super::known::KNOWN;
use super::scenario::{bytes, records};
use crate::ring::{Ring, daemons};
use crate::source::{Capture, Polled, Source};

/// Long enough for a thread to be scheduled anywhere.
const LONG: Duration = Duration::from_secs(60);

fn capture(run_dir: &Path, pid: Option<u32>) -> Capture {
    let run_dir = run_dir.to_owned();
    Capture { pid, run_dir, packet_bytes: 128, key_bytes: 64, buffer_pages: 1, debug: false }
}

/// A daemon that sends `answer` to its only client; returns the request.
fn daemon(folder: &Path, pid: u32, answer: impl FnOnce(UnixStream) + Send + 'static) -> JoinHandle<String> {
    let listener = UnixListener::bind(folder.join(format!("sluiced.{pid}.events"))).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request).unwrap();
        answer(stream);
        request
    })
}

fn all(ring: &mut Ring) -> (Vec<Record>, Result<Option<String>, String>) {
    let mut found = Vec::new();
    loop {
        match ring.next(LONG) {
            Ok(Polled::Record(record)) => found.push(record),
            Ok(Polled::Nothing) => {}
            Ok(Polled::End { note }) => return (found, Ok(note)),
            Err(error) => return (found, Err(error.to_string())),
        }
    }
}

#[test]
fn the_daemon_is_found_asked_and_read() {
    let folder = TempDir::new("ring").unwrap();
    let served = daemon(folder.path(), 7, |mut stream| {
        for piece in bytes(KNOWN).chunks(13) {
            stream.write_all(piece).unwrap();
        }
    });
    // A socket that a killed daemon left.
    drop(UnixListener::bind(folder.path().join("sluiced.6.events")).unwrap());
    assert_eq!(daemons(folder.path()).len(), 2);
    let mut ring = Ring::open(&capture(folder.path(), None)).unwrap();
    assert_eq!(all(&mut ring), (records(KNOWN), Ok(None)));
    assert_eq!(served.join().unwrap(), "snap=128 key=64 stages=all\n");
}

#[test]
fn a_crashed_daemon_leaves_its_events() {
    let folder = TempDir::new("ring").unwrap();
    let whole = bytes(KNOWN);
    let cut = whole.len() - 20;
    let served = daemon(folder.path(), 7, move |mut stream| stream.write_all(&whole[..cut]).unwrap());
    let mut ring = Ring::open(&capture(folder.path(), Some(7))).unwrap();
    let (found, end) = all(&mut ring);
    assert_eq!(found, records(KNOWN)[..found.len()]);
    assert!(found.len() > 30);
    let note = end.unwrap().unwrap();
    assert!(
        note.ends_with("the switch ended or died while it was traced; what was gathered before is used"),
        "{note}"
    );
    served.join().unwrap();
}

#[test]
fn nothing_for_a_while_is_no_end() {
    let folder = TempDir::new("ring").unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let served = daemon(folder.path(), 7, move |mut stream| {
        wait.recv().unwrap();
        stream.write_all(&bytes("end")).unwrap();
    });
    let mut ring = Ring::open(&capture(folder.path(), None)).unwrap();
    assert_eq!(ring.next(Duration::from_millis(1)).unwrap(), Polled::Nothing);
    go.send(()).unwrap();
    assert_eq!(all(&mut ring), (vec![Record::End], Ok(None)));
    served.join().unwrap();
}

#[test]
fn a_foreign_protocol_is_refused() {
    let folder = TempDir::new("ring").unwrap();
    let served =
        daemon(folder.path(), 7, |mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap());
    let mut ring = Ring::open(&capture(folder.path(), None)).unwrap();
    let (_, end) = all(&mut ring);
    assert!(end.unwrap_err().ends_with("not a recording of upcalls: another program's socket?"));
    served.join().unwrap();
}

#[test]
fn a_refusal_contains_the_daemons_message() {
    let folder = TempDir::new("ring").unwrap();
    let served = daemon(folder.path(), 7, |mut stream| {
        stream.write_all(b"error: somebody listens already\n").unwrap()
    });
    let mut ring = Ring::open(&capture(folder.path(), None)).unwrap();
    let (_, end) = all(&mut ring);
    assert!(end.unwrap_err().ends_with("sluiced.7.events: somebody listens already"));
    served.join().unwrap();
}

#[test]
fn no_daemon_or_several_are_reported() {
    let folder = TempDir::new("ring").unwrap();
    let error = |pid| Ring::open(&capture(folder.path(), pid)).err().expect("nothing to trace").to_string();
    assert!(error(None).starts_with("no switch found"), "{}", error(None));
    assert!(error(Some(9)).contains("process 9 has no event socket there"), "{}", error(Some(9)));
    let _one = UnixListener::bind(folder.path().join("sluiced.3.events")).unwrap();
    let _two = UnixListener::bind(folder.path().join("sluiced.4.events")).unwrap();
    assert_eq!(error(None), "several switches run (3, 4): choose one by --pid");
}
