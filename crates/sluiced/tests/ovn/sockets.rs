//! TCP and UDP between machines.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::patience;

use crate::lab::Machine;

/// Timeout of one connection or answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Polling interval of servers.
const POLL: Duration = Duration::from_millis(5);
/// Bytes of one transfer: several large segments.
const TRANSFER_BYTES: usize = 400_000;

/// A server of TCP and UDP on a machine: it answers with its name; a TCP client gets what it sends back before it.
pub(crate) struct Server {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

/// Writes back what arrives until the client ends its side, and then the name.
fn echo(mut stream: TcpStream, name: &str) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience(ANSWER * 10)))?;
    let mut content = Vec::new();
    stream.read_to_end(&mut content)?;
    stream.write_all(&content)?;
    stream.write_all(name.as_bytes())
}

/// Starts a server on a port of a machine, on all addresses.
pub(crate) fn serve(machine: &Machine, port: u16, name: &str) -> Server {
    let bind = || (TcpListener::bind(("::", port)).unwrap(), UdpSocket::bind(("::", port)).unwrap());
    let (tcp, udp) = machine.netns.enter(bind).unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    tcp.set_nonblocking(true).unwrap();
    udp.set_read_timeout(Some(POLL)).unwrap();
    let (name, until) = (name.to_string(), Arc::clone(&ends));
    let streams = std::thread::spawn({
        let (name, until) = (name.clone(), Arc::clone(&until));
        move || {
            while !until.load(Ordering::Relaxed) {
                match tcp.accept() {
                    Ok((stream, _)) => {
                        let name = name.clone();
                        std::thread::spawn(move || drop(echo(stream, &name)));
                    }
                    Err(_) => std::thread::sleep(POLL),
                }
            }
        }
    });
    let datagrams = std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while !until.load(Ordering::Relaxed) {
            if let Ok((_, from)) = udp.recv_from(&mut buffer) {
                let _unreachable = udp.send_to(name.as_bytes(), from);
            }
        }
    });
    Server { ends, threads: vec![streams, datagrams] }
}

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn exchange(to: SocketAddr, content: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&to, patience(ANSWER))?;
    stream.set_read_timeout(Some(patience(ANSWER * 10)))?;
    stream.write_all(content)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Connects by TCP; returns the server's name, or the kind of error.
pub(crate) fn connect(machine: &Machine, ip: &str, port: u16) -> Result<String, ErrorKind> {
    let to = address(ip, port);
    let answer = machine.netns.enter(|| exchange(to, &[])).unwrap().map_err(|why| why.kind())?;
    Ok(String::from_utf8(answer).unwrap())
}

/// Sends large segments to a server and compares them with the answer.
pub(crate) fn transfer(machine: &Machine, ip: &str, port: u16, name: &str) {
    let (to, mut content) = (address(ip, port), (0..TRANSFER_BYTES).map(|i| i as u8).collect::<Vec<u8>>());
    let answer = machine.netns.enter(|| exchange(to, &content)).unwrap().unwrap();
    content.extend(name.as_bytes());
    assert!(answer == content, "{ip}:{port}: {} of {} bytes", answer.len(), content.len());
}

/// Sends a datagram and returns the answer, or the kind of error.
pub(crate) fn ask(machine: &Machine, ip: &str, port: u16, content: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    let to = address(ip, port);
    let talk = || -> std::io::Result<Vec<u8>> {
        let socket = UdpSocket::bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
        socket.set_read_timeout(Some(patience(ANSWER)))?;
        socket.connect(to)?;
        socket.send(content)?;
        let mut buffer = [0; 2048];
        let bytes = socket.recv(&mut buffer)?;
        Ok(buffer[..bytes].to_vec())
    };
    machine.netns.enter(talk).unwrap().map_err(|why| why.kind())
}
