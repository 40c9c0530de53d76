use super::*;
use crate::request::parse;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::thread::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn requests_are_read_or_refused() {
    let headers = |n: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(n));
    let request = |is_head, path, query, host| Ok(Request { is_head, path, query, host });
    let fault = |fault| Err(Some(fault));
    for (text, expected) in [
        ("GET /metrics HTTP/1.1\r\nHost: h:1\r\n\r\n", request(false, "/metrics", "", "h:1")),
        ("HEAD /a?b=c?d HTTP/1.0\r\n\r\n", request(true, "/a", "b=c?d", "")),
        ("GET http://h:1/x?y HTTP/1.1\nHOST:  other \n\n", request(false, "/x", "y", "other")),
        ("GET http://h HTTP/1.1\r\n\r\n", request(false, "/", "", "")),
        ("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", request(false, "/", "", "")),
        ("GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", fault(Fault::Body)),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", fault(Fault::Body)),
        ("POST / HTTP/1.1\r\n\r\n", fault(Fault::Method)),
        ("GET / HTTP/1.1\r\n\u{0}: x\r\n\r\n", fault(Fault::Malformed)),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", fault(Fault::Malformed)),
        ("\u{16}\u{3}\u{1}", fault(Fault::Malformed)),
        (&headers(64), request(false, "/", "", "")),
        (&headers(65), fault(Fault::TooLong)),
        ("GET / HTTP/1.1\r\nHost: x\r\n", Err(None)),
        ("", Err(None)),
    ] {
        assert_eq!(parse(text.as_bytes()), expected, "{text:?}");
    }
}

#[test]
fn corpus_of_requests() {
    testkit::replay_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/request"), crate::fuzz::request);
}

/// Replies with the path, and a body of as many bytes as it says.
struct Echo(Arc<Mutex<Vec<String>>>);

impl Service for Echo {
    fn answer(&mut self, request: &Request<'_>) -> Reply {
        self.0.lock().unwrap().push(request.path.to_string());
        match request.path.trim_start_matches('/').parse() {
            Ok(bytes) => Reply { body: Arc::new(vec![b'x'; bytes]), ..Reply::text(200, "") },
            Err(_) => Reply::text(404, request.path),
        }
    }
}

struct Running {
    address: SocketAddr,
    counts: Arc<Counts>,
    asked: Arc<Mutex<Vec<String>>>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(limits: Limits) -> Running {
        let server = Server::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap()), limits).unwrap();
        let address = SocketAddr::new("127.0.0.1".parse().unwrap(), server.port().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (counts, stop, mut echo) = (server.counts(), server.stopper(), Echo(asked.clone()));
        let thread = std::thread::spawn(move || server.run(&mut echo).unwrap());
        Running { address, counts, asked, stop, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        rest(&mut stream)
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\n\r\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    String::from_utf8(all).unwrap()
}

fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_reply_comes_whole_and_the_connection_ends() {
    let server = Running::new(Limits::default());
    let long = server.get("/3000000");
    assert!(long.starts_with("HTTP/1.1 200 OK\r\n") && long.contains("Content-Length: 3000000\r\n"));
    assert_eq!(long.split_once("\r\n\r\n").unwrap().1.len(), 3_000_000);
    assert!(server.get("/x").starts_with("HTTP/1.1 404 Not Found\r\n"));
    let head = server.ask("HEAD /5 HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: 5\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(server.ask("PUT / HTTP/1.1\r\n\r\n").contains("405 Method Not Allowed\r\n"));
    assert!(server.ask("PUT / HTTP/1.1\r\n\r\n").contains("Allow: GET, HEAD\r\n"));
    // A client that ends its side first, and one that sends the request byte by byte.
    let mut stream = server.connect();
    stream.write_all(b"GET /4 HTTP/1.1\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut stream).ends_with("\r\n\r\nxxxx"));
    let mut stream = server.connect();
    for byte in b"GET /2 HTTP/1.1\r\nHost: x\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    assert!(rest(&mut stream).ends_with("\r\n\r\nxx"));
}

#[test]
fn a_long_request_is_refused_and_its_reply_arrives() {
    let server = Running::new(Limits::default());
    let mut stream = server.connect();
    // The server may close before all is written.
    let _ = stream.write_all(format!("GET /1 HTTP/1.1\r\nX: {}", "y".repeat(20_000)).as_bytes());
    assert!(rest(&mut stream).starts_with("HTTP/1.1 431 "));
    assert_eq!(*server.asked.lock().unwrap(), [""; 0]);
    // Without an end, nothing is kept.
    let mut stream = server.connect();
    while stream.write_all(&[b'a'; 65_536]).is_ok() {}
}

#[test]
fn a_thousand_silent_clients_keep_no_other_from_its_reply() {
    let server = Running::new(Limits::default());
    let mut silent: Vec<TcpStream> = Vec::new();
    for n in 0..1000 {
        let mut stream = server.connect();
        stream.write_all(b"GET /1 HTTP/1.1\r\nX: ").unwrap();
        silent.push(stream);
        if n % 250 == 249 {
            assert!(server.get("/3").ends_with("xxx"));
        }
    }
    until(|| server.counts.evicted.load(Ordering::Relaxed) >= 1000 - 64);
    assert!(server.get("/3").ends_with("xxx"));
}

#[test]
fn slow_clients_are_ended() {
    let brief = Duration::from_millis(50);
    let server = Running::new(Limits { request_time: brief, reply_time: brief, ..Limits::default() });
    let mut silent = server.connect();
    silent.write_all(b"GET /1").unwrap();
    assert_eq!(rest(&mut silent), "");
    // One that reads nothing: the reply is longer than all buffers.
    let mut deaf = server.connect();
    deaf.write_all(b"GET /50000000 HTTP/1.1\r\n\r\n").unwrap();
    until(|| server.counts.timed_out.load(Ordering::Relaxed) >= 2);
    drop(deaf);
}

#[test]
fn unread_replies_are_bounded() {
    let server = Running::new(Limits { unread_bytes: 40_000_000, ..Limits::default() });
    let mut deaf: Vec<TcpStream> = Vec::new();
    let refused = || server.counts.refused.load(Ordering::Relaxed);
    for n in 1..=5 {
        let mut stream = server.connect();
        stream.write_all(b"GET /30000000 HTTP/1.1\r\n\r\n").unwrap();
        deaf.push(stream);
        until(|| server.counts.answered.load(Ordering::Relaxed) == n);
    }
    assert_eq!((refused(), server.asked.lock().unwrap().len()), (3, 2));
    let mut last = deaf.pop().unwrap();
    assert!(rest(&mut last).starts_with("HTTP/1.1 503 "));
    drop(deaf);
    // They are forgotten once they are gone.
    until(|| server.get("/3").ends_with("xxx"));
}

#[test]
fn a_socket_in_use_is_refused_and_a_left_one_replaced() {
    let folder = testkit::TempDir::new("httpd").unwrap();
    let path = folder.path().join("s");
    let bind = || Server::bind(&Address::Unix(path.clone()), Limits::default());
    let first = bind().unwrap();
    assert_eq!(bind().err().map(|e| e.kind()), Some(io::ErrorKind::AddrInUse));
    drop(first);
    assert!(!path.exists());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    drop(bind().unwrap());
}
