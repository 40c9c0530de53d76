use super::{Claim, Look, Patience, Seeker, claim};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{TempDir, require_programs};

/// A process that performs these steps, reports it, and waits.
const PEER: &str = r#"
import ctypes, fcntl, os, socket, sys, threading, time
kept = []
def listen(backlog=9):
    s = socket.socket(socket.AF_UNIX)
    s.bind(sys.argv[1])
    s.listen(backlog)
    kept.append(s)
for word in sys.argv[3:]:
    if word == "lock":
        f = open(sys.argv[2], "w")
        fcntl.lockf(f, fcntl.LOCK_EX)
        kept.append(f)
    elif word == "listen":
        listen()
    elif word == "small":
        listen(0)
    elif word == "full":
        listen(0)
        s = socket.socket(socket.AF_UNIX)
        s.connect(sys.argv[1])
    elif word == "inherit":
        listen()
        if os.fork():
            os._exit(0)
    elif word == "end":
        # The process shows as a zombie while another thread keeps its files open.
        def tell():
            while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
                time.sleep(0.01)
            print("ready", flush=True)
            time.sleep(60)
        threading.Thread(target=tell).start()
        ctypes.CDLL(None).pthread_exit(None)
print("ready", flush=True)
sys.stdin.read()
"#;

fn peer(dir: &Path, words: &[&str]) -> Child {
    let mut child = Command::new("python3")
        .args(["-c", PEER])
        .args([dir.join("db.sock"), dir.join(".conf.db.~lock~")])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn seeker(dir: &Path) -> Seeker {
    Seeker::new(dir.join("conf.db"), dir.join("db.sock"))
}

#[test]
fn lock_and_socket_determine_the_server() {
    require_programs!("python3");
    for (words, expected) in [
        (&[][..], "ours"),
        (&["listen"], "served"),
        (&["lock", "listen"], "served"),
        (&["inherit"], "served"),
        (&["lock"], "locked by process"),
        (&["listen", "end"], "is ending and still listens"),
        (&["lock", "listen", "end"], "is ending and still listens"),
        // The backlog has room for the first look alone.
        (&["small", "end"], "is ending and still listens"),
        (&["lock", "full"], "served"),
        (&["lock", "full", "end"], "the listener does not accept connections; the database file is in use"),
        (&["full"], "served"),
    ] {
        let dir = TempDir::new("claim").unwrap();
        let mut child = peer(dir.path(), words);
        let patience = Patience { running: Duration::from_millis(50), ending: Duration::from_millis(50) };
        let got = claim(&mut seeker(dir.path()), &patience, || false);
        let got = match &got {
            Ok(Claim::Ours(_)) => "ours".to_string(),
            Ok(Claim::Served) => "served".to_string(),
            Err(e) => format!("{e:#}"),
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(got.contains(expected), "{words:?}: {got}");
    }
}

#[test]
fn the_wait_ends_by_its_event_or_a_signal() {
    require_programs!("python3");
    for words in [&["lock"][..], &["listen", "end"], &["small", "end"], &["lock", "full", "end"]] {
        let dir = TempDir::new("claim").unwrap();
        let mut seeker = seeker(dir.path());
        let mut child = peer(dir.path(), words);
        let told = claim(&mut seeker, &Patience::DEFAULT, || true).unwrap_err();
        assert!(told.to_string().contains("terminated while waiting"), "{told:#}");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| claim(&mut seeker, &Patience::DEFAULT, || false));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(matches!(waits.join().unwrap(), Ok(Claim::Ours(_))), "{words:?}");
        });
    }
}

/// A start looks every 20 ms, and a client of a lost server at each attempt: neither may use up the backlog.
#[test]
fn looks_at_an_ending_process_take_one_place_in_its_backlog() {
    require_programs!("python3");
    let dir = TempDir::new("claim").unwrap();
    let mut child = peer(dir.path(), &["listen", "end"]);
    let mut seeker = seeker(dir.path());
    for look in 0..50 {
        let Look::Wait(pause) = seeker.look().unwrap() else { panic!("look {look}") };
        assert!(pause.ending && !pause.or_follow, "look {look}: {}", pause.why);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(seeker.look().unwrap(), Look::Found(Claim::Ours(_))));
}
