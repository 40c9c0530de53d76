//! Our database server behind a Unix socket: a small blocking loop around `ovsdb::server`. The tests of
//! `sluice` include this file, too.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ovsdb::db::Database;
use ovsdb::server::{Server, ServerLimits, SessionId, Time};
use ovsdb::value::SeededUuids;

/// Serves `db` until stopped. `wall_ms` returns the time, `log` receives the log records; the same seed
/// yields the same UUIDs.
pub(crate) fn serve(
    db: Database,
    listener: &UnixListener,
    seed: u64,
    wall_ms: impl Fn() -> i64,
    mut log: impl FnMut(&[u8]),
    stop: &AtomicBool,
) {
    let mut server = Server::new(Box::new(SeededUuids::new(seed)), ServerLimits::default());
    server.add_database(db, true).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut streams: Vec<(SessionId, UnixStream)> = Vec::new();
    let begin = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Time { mono_ms: begin.elapsed().as_millis() as u64, wall_ms: wall_ms() };
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            streams.push((server.session_open().unwrap(), stream));
        }
        server.work(now);
        streams.retain_mut(|(id, stream)| exchange(&mut server, *id, stream, now));
        for record in server.take_log() {
            log(&record.bytes);
        }
        server.log_synced(server.log_seq());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Moves bytes of one session; false when it ended.
fn exchange(server: &mut Server, id: SessionId, stream: &mut UnixStream, now: Time) -> bool {
    let mut buffer = [0; 65536];
    let open = match stream.read(&mut buffer) {
        Ok(0) => false,
        Ok(length) => {
            server.session_input(id, &buffer[..length], now);
            true
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    let output = server.session_output(id);
    stream.set_nonblocking(false).unwrap();
    let written = stream.write_all(&output);
    stream.set_nonblocking(true).unwrap();
    let open = open && written.is_ok() && server.session_closing(id).is_none();
    if !open {
        server.session_close(id);
    }
    open
}
