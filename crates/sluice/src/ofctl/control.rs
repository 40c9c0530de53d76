//! The control socket of `monitor` and `snoop` (`--unixctl`), for ovs-appctl(8): JSON-RPC requests whose method is the
//! command and whose parameters are its arguments.
//!
//! Commands about the log are done here; the others are values for the loop that prints messages. A client has one
//! request at a time; memory is bounded by the limits below.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ovsdb::jsonrpc::{Framer, FramerLimits, RpcMessage};
use serde_json::Value;
use sys::poll::PollSet;
use vlog::vlog;

/// Maximum number of clients; further ones are refused.
const CLIENTS_MAX: usize = 16;
/// Maximum bytes of a request: a message of OpenFlow in digits fits several times.
const REQUEST_MAX_BYTES: usize = 1 << 20;

/// A command for the loop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// `exit`
    Exit,
    /// `ofctl/set-output-file FILE`
    Output(PathBuf),
    /// `ofctl/send OFMSG...`: messages in hexadecimal digits.
    Send(Vec<String>),
    /// `ofctl/packet-out PACKET`
    PacketOut(String),
    /// `ofctl/barrier`
    Barrier,
    /// `ofctl/block`
    Block,
    /// `ofctl/unblock`
    Unblock,
}

/// Place of an answer: the client and the request.
#[derive(Debug)]
pub(super) struct Ticket {
    client: u64,
    id: Value,
}

/// A command: its name, arguments, least and greatest number of them.
type Row = (&'static str, &'static str, usize, usize);

/// All commands, in order of their names.
pub(super) const COMMANDS: [Row; 16] = [
    ("exit", "", 0, 0),
    ("list-commands", "", 0, 0),
    ("ofctl/barrier", "", 0, 0),
    ("ofctl/block", "", 0, 0),
    ("ofctl/packet-out", "\"in_port=<port> packet=<hex data> actions=...\"", 1, 1),
    ("ofctl/send", "OFMSG...", 1, usize::MAX),
    ("ofctl/set-output-file", "FILE", 1, 1),
    ("ofctl/unblock", "", 0, 0),
    ("version", "", 0, 0),
    ("vlog/close", "", 0, 0),
    ("vlog/disable-rate-limit", "[module]...", 0, usize::MAX),
    ("vlog/enable-rate-limit", "[module]...", 0, usize::MAX),
    ("vlog/list", "", 0, 0),
    ("vlog/list-pattern", "", 0, 0),
    ("vlog/reopen", "", 0, 0),
    ("vlog/set", "{spec | PATTERN:destination:pattern}", 0, usize::MAX),
];

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done {
    Answer(Result<String, String>),
    Order(Order),
}

/// Does a command, or returns it as an order.
pub(super) fn command(name: &str, args: &[String]) -> Done {
    let Some((_, _, least, most)) = COMMANDS.iter().find(|row| row.0 == name) else {
        let text = format!(
            "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
        );
        return Done::Answer(Err(text));
    };
    if args.len() < *least {
        return Done::Answer(Err(format!("\"{name}\" command requires at least {least} arguments")));
    }
    if args.len() > *most {
        return Done::Answer(Err(format!("\"{name}\" command takes at most {most} arguments")));
    }
    let first = || args.first().cloned().unwrap_or_default();
    match name {
        "exit" => Done::Order(Order::Exit),
        "ofctl/barrier" => Done::Order(Order::Barrier),
        "ofctl/block" => Done::Order(Order::Block),
        "ofctl/packet-out" => Done::Order(Order::PacketOut(first())),
        "ofctl/send" => Done::Order(Order::Send(args.to_vec())),
        "ofctl/set-output-file" => Done::Order(Order::Output(first().into())),
        "ofctl/unblock" => Done::Order(Order::Unblock),
        _ => Done::Answer(of_log(name, args)),
    }
}

/// Commands about the program and its log.
fn of_log(name: &str, args: &[String]) -> Result<String, String> {
    let log = vlog();
    let nothing = |()| String::new();
    match name {
        "list-commands" => {
            let line = |(name, usage, ..): &Row| format!("  {name:<23} {usage}\n");
            Ok(format!("The available commands are:\n{}", COMMANDS.iter().map(line).collect::<String>()))
        }
        "vlog/close" => {
            log.close();
            Ok(String::new())
        }
        "vlog/disable-rate-limit" => log.set_rate_limit(args, false).map(nothing),
        "vlog/enable-rate-limit" => log.set_rate_limit(args, true).map(nothing),
        "vlog/list" => Ok(log.list()),
        "vlog/list-pattern" => Ok(log.list_patterns()),
        "vlog/reopen" => log.reopen().map(nothing),
        "vlog/set" if args.is_empty() => log.set("any:any:dbg").map(nothing),
        "vlog/set" => args.iter().try_for_each(|spec| log.set(spec)).map(nothing),
        _ => Ok(format!("ovs-ofctl (Sluice) {}\n", env!("CARGO_PKG_VERSION"))),
    }
}

/// A client and its requests.
struct Client {
    number: u64,
    stream: UnixStream,
    framer: Framer,
    /// Its request waits for an answer.
    waits: bool,
}

/// The socket and its clients.
pub(super) struct Control {
    path: PathBuf,
    listener: UnixListener,
    clients: Vec<Client>,
    next: u64,
}

impl Control {
    /// Listens at a path.
    ///
    /// # Errors
    /// Something else listens there, or its folder cannot be written.
    pub(super) fn open(path: &Path) -> Result<Control> {
        let listener = sys::local::listen_at(path, sys::local::SOCKET_MODE)
            .with_context(|| format!("{}: cannot listen for control connections", path.display()))?;
        Ok(Control { path: path.to_path_buf(), listener, clients: Vec::new(), next: 0 })
    }

    /// Adds its descriptors to a set. A client whose request waits is not read.
    pub(super) fn wait_for<'s>(&'s self, set: &mut PollSet<'s>) {
        set.add(self.listener.as_fd(), false);
        for client in self.clients.iter().filter(|client| !client.waits) {
            set.add(client.stream.as_fd(), false);
        }
    }

    /// Accepts clients and reads their requests; returns the next order.
    pub(super) fn next_order(&mut self) -> Option<(Ticket, Order)> {
        while let Ok((stream, _)) = self.listener.accept() {
            let limits = FramerLimits { bytes: REQUEST_MAX_BYTES, ..FramerLimits::default() };
            if self.clients.len() < CLIENTS_MAX && stream.set_nonblocking(true).is_ok() {
                let number = self.next;
                self.next += 1;
                self.clients.push(Client { number, stream, framer: Framer::new(limits), waits: false });
            }
        }
        let mut at = 0;
        while at < self.clients.len() {
            match self.clients[at].next_order() {
                Ok(Some(order)) => return Some(order),
                Ok(None) => at += 1,
                Err(Gone) => drop(self.clients.remove(at)),
            }
        }
        None
    }

    /// Answers a request. A client that has gone needs none.
    pub(super) fn answer(&mut self, ticket: Ticket, answer: Result<String, String>) {
        let Some(at) = self.clients.iter().position(|client| client.number == ticket.client) else { return };
        if self.clients[at].answer(ticket.id, answer).is_err() {
            self.clients.remove(at);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // It may have been removed already.
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// A text that is not empty ends its line.
fn line(text: String) -> String {
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}

/// The client ended, or sent bytes that are no request.
struct Gone;

impl Client {
    fn next_order(&mut self) -> Result<Option<(Ticket, Order)>, Gone> {
        while !self.waits {
            let Some(text) = self.framer.next_text().map_err(|_| Gone)? else {
                let mut buffer = [0; 4096];
                match self.stream.read(&mut buffer) {
                    Ok(0) => return Err(Gone),
                    Ok(length) => self.framer.feed(&buffer[..length]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                    Err(_) => return Err(Gone),
                }
                continue;
            };
            let Ok(RpcMessage::Request { id, method, params }) = RpcMessage::from_json(text) else {
                return Err(Gone);
            };
            let args: Option<Vec<String>> =
                params.iter().map(|value| value.as_str().map(String::from)).collect();
            let done = match args {
                Some(args) => command(&method, &args),
                None => Done::Answer(Err(format!("\"{method}\" command has non-string argument"))),
            };
            match done {
                Done::Answer(answer) => self.answer(id, answer)?,
                Done::Order(order) => {
                    self.waits = true;
                    return Ok(Some((Ticket { client: self.number, id }, order)));
                }
            }
        }
        Ok(None)
    }

    /// Sends an answer; a client that does not read it is cut off.
    fn answer(&mut self, id: Value, answer: Result<String, String>) -> Result<(), Gone> {
        self.waits = false;
        let message = match answer {
            Ok(text) => RpcMessage::Reply { id, result: Value::from(line(text)) },
            Err(text) => RpcMessage::Error { id, error: Value::from(line(text)) },
        };
        self.stream.write_all(&message.encode()).map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_arguments_of_ovs_ofctl() {
        let of = |line: &str| {
            let mut words = line.split(' ').map(String::from);
            let name = words.next().unwrap_or_default();
            command(&name, &words.collect::<Vec<_>>())
        };
        let order = |line: &str, wanted: Order| assert_eq!(of(line), Done::Order(wanted), "{line}");
        order("exit", Order::Exit);
        order("ofctl/send 01 02", Order::Send(vec!["01".into(), "02".into()]));
        order("ofctl/set-output-file /x", Order::Output("/x".into()));
        order("ofctl/barrier", Order::Barrier);
        for (line, fault) in [
            ("ofctl/send", "\"ofctl/send\" command requires at least 1 arguments"),
            ("ofctl/set-output-file", "\"ofctl/set-output-file\" command requires at least 1 arguments"),
            ("exit a", "\"exit\" command takes at most 0 arguments"),
            ("vlog/set bogus", "no destination, level, or module \"bogus\""),
            (
                "bogus",
                "\"bogus\" is not a valid command (use \"list-commands\" to see a list of valid commands)",
            ),
        ] {
            assert_eq!(of(line), Done::Answer(Err(fault.to_string())), "{line}");
        }
        assert!(COMMANDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let Done::Answer(Ok(list)) = of("list-commands") else { panic!("no list") };
        assert!(list.contains("\n  ofctl/send              OFMSG...\n"), "{list}");
    }

    #[test]
    fn a_client_gets_its_answers() {
        let dir = testkit::TempDir::new("control").unwrap();
        let path = dir.path().join("m.ctl");
        let mut control = Control::open(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        let request = |method: &str| format!(r#"{{"id":5,"method":"{method}","params":[]}}"#);
        client.write_all(request("version").as_bytes()).unwrap();
        client.write_all(request("ofctl/block").as_bytes()).unwrap();
        let (ticket, order) = control.next_order().unwrap();
        assert_eq!(order, Order::Block);
        assert!(control.next_order().is_none(), "one request at a time");
        control.answer(ticket, Err("already".into()));
        let mut buffer = [0; 1000];
        let length = client.read(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..length]);
        assert!(text.contains("ovs-ofctl (Sluice)") && text.contains(r#""already\n""#), "{text}");
        client.write_all(b"[]").unwrap();
        assert!(control.next_order().is_none() && control.clients.is_empty(), "no request");
        drop(control);
        assert!(!path.exists());
    }
}
