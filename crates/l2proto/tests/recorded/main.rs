//! Sessions against recordings of the stock switch: same settings and received frames at the same virtual times, same
//! sent frames, `bfd/show` and `bfd_status`.
//!
//! `SLUICE_BFD_RECORD=1 cargo test -p l2proto --test recorded` records anew with Debian's switch (`record`), in dummy
//! mode with its clock stopped. Its random numbers are unknown: in each step the replay looks for jitters that explain
//! the recorded time of the next packet.
//!
//! A recording is a list of lines: `@ MS` the time; `PORT new DISCRIMINATOR UDP-PORT MAC KIND`, `PORT set KEY=VALUE…`,
//! `PORT forward CHOICE`; `PORT in FRAME`, `PORT data` frames received; `PORT out HEADERS MESSAGE` a frame sent (`-` for
//! the headers of the last one); `PORT ~N LINE` a changed line of `bfd/show`, with times of the clock (`at MS`) in place of
//! times from now; `PORT status PAIRS`.

mod record;

use l2proto::bfd::{Config, Environment, Forwarding, Identity, Received, Session, SessionId, udp_payload};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS_BYTES: usize = 42;
/// Jitters that a session draws.
const JITTERS: u32 = 26;

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A recorded line of `bfd/show` at a time.
fn relative(line: &str, now_ms: u64) -> String {
    let Some((name, time)) = line.split_once("at ") else { return line.to_owned() };
    match time.parse::<i64>() {
        Ok(time_ms) => format!("{name}now {:+}ms", time_ms - now_ms as i64),
        Err(_) => line.to_owned(),
    }
}

/// Counts frames of the port, and draws the jitters that the replay tries: one for the first draw of a step, one for all
/// others, of which only the last matters.
#[derive(Clone, Default)]
struct Recorded {
    rx_packets: u64,
    jitters: [u32; 2],
    draws: usize,
}

impl Environment for Recorded {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        self.rx_packets
    }

    fn random(&mut self, below: u32) -> u32 {
        self.draws += 1;
        self.jitters[usize::from(self.draws > 1)] % below
    }
}

/// One port of a replay.
#[derive(Clone, Default)]
struct Port {
    session: Option<Session>,
    identity: Option<Identity>,
    env: Recorded,
    /// The stock switch computes the time of its next look when it sends or is configured. A received packet that makes
    /// the next packet due earlier does not change it, unless that packet is due at once.
    wakeup_ms: u64,
    /// Whether the switch counts packets for `forwarding_if_rx`: with patch ports.
    counts: bool,
    /// Frames sent and not compared yet.
    sent: Vec<String>,
    status: String,
}

/// The recorded texts of one port.
#[derive(Default)]
struct Texts {
    headers: String,
    shown: Vec<String>,
}

impl Texts {
    /// Takes the lines of a step: those to play, frames complete, and `bfd/show` at its end.
    fn take(&mut self, lines: &[&str], now_ms: u64) -> (Vec<String>, String) {
        let mut rest = Vec::new();
        for line in lines {
            let (verb, arguments) = line.split_once(' ').unwrap_or((line, ""));
            if let Some(row) = verb.strip_prefix('~') {
                let row: usize = row.parse().unwrap();
                self.shown.resize(self.shown.len().max(row + 1), String::new());
                self.shown[row] = arguments.to_owned();
            } else if verb == "out" {
                let (headers, message) = arguments.split_once(' ').unwrap();
                if headers != "-" {
                    self.headers = headers.to_owned();
                }
                rest.push(format!("out {}{message}", self.headers));
            } else {
                rest.push((*line).to_owned());
            }
        }
        (rest, self.shown.iter().map(|line| relative(line, now_ms) + "\n").collect())
    }
}

impl Port {
    /// Serves the session as the stock switch does.
    fn serve(&mut self, now_ms: u64) {
        let Some(session) = &mut self.session else { return };
        while self.wakeup_ms <= now_ms {
            let sent = session.poll_transmit(now_ms, &mut self.env);
            self.sent.extend(sent.map(|transmission| hex_of(&transmission.frame)));
            session.tick(now_ms, &mut self.env);
            self.wakeup_ms = session.next_wakeup();
        }
    }

    fn identify(&mut self, words: &str) {
        let words: Vec<&str> = words.split(' ').collect();
        self.identity = Some(Identity {
            id: SessionId(0),
            name: "p".to_owned(),
            discriminator: u32::from_str_radix(words[0].trim_start_matches("0x"), 16).unwrap(),
            src_port: words[1].parse().unwrap(),
            port_mac: flow::MacAddr::parse(words[2]).unwrap(),
        });
        self.counts = words[3] == "patch";
        self.session = None;
    }

    fn configure(&mut self, words: &str, now_ms: u64) {
        let pairs = words.split(' ').filter_map(|pair| pair.split_once('='));
        let map: BTreeMap<String, String> = pairs.map(|(key, value)| (key.into(), value.into())).collect();
        let config = Config::parse(&map).0;
        match &mut self.session {
            _ if !config.enable => self.session = None,
            Some(session) => session.configure(config, now_ms, &mut self.env),
            None => {
                let identity = self.identity.clone().expect("a line `new`");
                self.session = Some(Session::new(identity, config, now_ms, &mut self.env));
            }
        }
        self.wakeup_ms = 0;
        self.serve(now_ms);
    }

    fn receive(&mut self, frame: Option<&str>, now_ms: u64) {
        self.env.rx_packets += 1;
        let Some(session) = &mut self.session else { return };
        if let Some(frame) = frame.map(bytes_of) {
            let received = Received { ttl: frame[22], payload: udp_payload(&frame) };
            // A refusal shows in all that follows.
            let _ = session.input(received, now_ms, &mut self.env);
            if session.next_wakeup() <= now_ms {
                self.wakeup_ms = 0;
            }
        }
        if self.counts {
            session.account_rx(1, now_ms);
        }
        self.serve(now_ms);
    }

    /// Plays a line of this port; the error is a difference.
    fn play(&mut self, line: &str, now_ms: u64) -> Result<(), String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "new" => self.identify(rest),
            "set" => self.configure(rest, now_ms),
            "forward" => {
                let forced = Forwarding::parse(rest).unwrap();
                self.session.iter_mut().for_each(|session| session.set_forwarding(forced));
            }
            "in" => self.receive(Some(rest), now_ms),
            "data" => self.receive(None, now_ms),
            "out" => {
                let sent = (!self.sent.is_empty()).then(|| self.sent.remove(0));
                if sent.as_deref() != Some(rest) {
                    return Err(format!("sent {sent:?}, not {rest}"));
                }
            }
            "status" => {
                // The database keeps the status of the last change.
                if let Some(session) = &mut self.session
                    && session.take_status_changed()
                {
                    let pairs = session.status(now_ms);
                    let text: Vec<String> =
                        pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    self.status = text.join(",");
                }
                if self.status != rest {
                    return Err(format!("status {}, not {rest}", self.status));
                }
            }
            _ => panic!("no such line: {line}"),
        }
        Ok(())
    }

    /// Compares what the step leaves.
    fn finish(&mut self, expected: &str, now_ms: u64) -> Result<(), String> {
        if let Some(frame) = self.sent.first() {
            return Err(format!("sent {frame}, which the stock switch did not"));
        }
        let Some(session) = &mut self.session else { return Ok(()) };
        let shown = session.show(now_ms);
        if shown == expected {
            return Ok(());
        }
        let pairs = shown.lines().zip(expected.lines()).filter(|(ours, theirs)| ours != theirs);
        let differences: Vec<String> =
            pairs.map(|(ours, theirs)| format!("shown{ours}, not{theirs}")).collect();
        Err(format!("{differences:?} or another number of lines"))
    }
}

/// Plays a step for one port; the result is each port that explains it, by the hidden time of its next look.
fn step(candidates: &[Port], lines: &[String], shown: &str, now_ms: u64) -> Result<Vec<Port>, String> {
    let mut explained: BTreeMap<u64, Port> = BTreeMap::new();
    let mut difference = String::new();
    for candidate in candidates {
        for jitters in (0..JITTERS).flat_map(|first| (0..JITTERS).map(move |last| [first, last])) {
            let mut port = candidate.clone();
            port.env = Recorded { jitters, draws: 0, ..port.env };
            port.serve(now_ms);
            let played = lines.iter().try_for_each(|line| port.play(line, now_ms));
            let draws = port.env.draws;
            match played.and_then(|()| port.finish(shown, now_ms)) {
                Ok(()) => _ = explained.entry(port.wakeup_ms).or_insert(port),
                Err(e) if difference.is_empty() || e.len() < difference.len() => difference = e,
                Err(_) => {}
            }
            // Jitters that are not drawn make no difference.
            if draws == 0 || (draws == 1 && jitters[0] == JITTERS - 1) {
                break;
            }
        }
    }
    if explained.is_empty() { Err(difference) } else { Ok(explained.into_values().collect()) }
}

/// Plays a recording; returns the number of compared steps.
fn replay(text: &str, name: &str) -> usize {
    let mut ports: BTreeMap<&str, (Texts, Vec<Port>)> = BTreeMap::new();
    let mut steps = 0;
    for part in text.split("@ ").skip(1) {
        let (time, lines) = part.split_once('\n').unwrap();
        let now_ms = time.parse().unwrap();
        for port in ["p0", "p1"] {
            let lines: Vec<&str> =
                lines.lines().filter_map(|line| line.strip_prefix(port)?.strip_prefix(' ')).collect();
            let (texts, candidates) =
                ports.entry(port).or_insert_with(|| (Texts::default(), vec![Port::default()]));
            let (lines, shown) = texts.take(&lines, now_ms);
            let played = step(candidates, &lines, &shown, now_ms);
            *candidates = played.unwrap_or_else(|e| panic!("{name}: at {now_ms}, {port}: {e}\n{lines:#?}"));
            steps += 1;
        }
    }
    steps
}

#[test]
fn sessions_do_what_the_stock_switch_did() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded");
    if std::env::var_os("SLUICE_BFD_RECORD").is_some() {
        record::all(folder);
    }
    let mut steps = 0;
    for (name, _) in record::SCENARIOS {
        steps += replay(&std::fs::read_to_string(format!("{folder}/{name}.txt")).unwrap(), name);
    }
    println!("{steps} steps");
}

#[test]
fn a_changed_recording_is_noticed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded");
    let text = std::fs::read_to_string(format!("{folder}/basic.txt")).unwrap();
    let cases = [
        ("Local Session State: init", "Local Session State: down"),
        ("set enable=true", "set enable=true min_rx=900"),
        ("flap_count=1", "flap_count=2"),
        ("out - 20c0", "out - 2080"),
    ];
    for (from, to) in cases {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert!(std::panic::catch_unwind(|| replay(&changed, "changed")).is_err(), "{from}");
    }
}
