//! One session and frames made by hand. Texts and log lines are those of OVS 3.5 after the same frames and times.

use super::*;

/// A session of interface `p1` at time 0 of the transcript.
struct Bed {
    sessions: Sessions,
    id: SessionId,
    env: Fixed,
    now_ms: u64,
    sent: Vec<Vec<u8>>,
    lines: Vec<String>,
}

impl Bed {
    fn new(config: &Config) -> Bed {
        let (mut sessions, mut env) = (Sessions::default(), Fixed::default());
        let id = sessions.configure(&port("p1", MacAddr([2; 6])), config, 1000, &mut env);
        let mut bed = Bed { sessions, id, env, now_ms: 1000, sent: Vec::new(), lines: Vec::new() };
        bed.run(0);
        bed
    }

    /// Time passes in steps of 100 ms, as `time/warp` makes it.
    fn run(&mut self, ms: u64) {
        for step in 0..=ms / 100 {
            self.now_ms += if step == 0 { 0 } else { 100 };
            let mut out = Vec::new();
            assert!(!self.sessions.tick(self.now_ms, 9, &mut self.env, &mut out));
            self.sent.extend(out.into_iter().map(|(_, sent)| sent.frame.to_vec()));
            self.take_lines();
        }
    }

    fn take_lines(&mut self) {
        while let Some(report) = self.sessions.take_report() {
            self.lines.extend(report.lines.into_iter().map(|line| line.text));
        }
    }

    fn receive(&mut self, frame: &[u8]) {
        let received = Received { ttl: 0, payload: Some(frame) };
        assert_eq!(self.sessions.input(self.id, received, self.now_ms, &mut self.env), Ok(()));
        self.take_lines();
    }

    fn get(&mut self, message: Message) {
        self.receive(&build(DST_MAC, MacAddr([2, 0, 0, 0, 0, 9]), None, &message));
    }

    fn command(&mut self, name: &str, args: &[&str]) -> Result<String, String> {
        let row = Sessions::COMMANDS.iter().find(|row| row.name == name).unwrap();
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        (row.run)(&mut self.sessions, &args, self.now_ms)
    }

    fn show(&mut self) -> String {
        self.command("cfm/show", &["p1"]).unwrap()
    }

    fn status(&mut self, name: &'static str) -> Option<LinkValue> {
        self.sessions.status(self.id, self.now_ms).remove(&(Table::Interface, name))
    }

    fn is_live(&mut self) -> bool {
        self.sessions.link_state(self.id, self.now_ms).is_live
    }
}

fn message(mpid: u16, seq: u32) -> Message {
    Message { interval: 4, seq, mpid, ..Message::default() }
}

#[test]
fn a_transcript_is_that_of_ovs() {
    let mut bed = Bed::new(&config(1, &[]));
    assert!(bed.is_live(), "no fault before the first check");
    bed.run(4500);
    assert_eq!(
        bed.show(),
        "---- p1 ----\nMPID 1:\n\tfault: recv\n\taverage health: undefined\n\topstate: up\n\tremote_opstate: up\n\
         \tinterval: 1000ms\n\tnext CCM tx: 500ms\n\tnext fault check: 2500ms\n"
    );
    assert!(!bed.is_live());
    let rdi = |frame: &Vec<u8>| parse_frame(frame).unwrap().message.unwrap().rdi;
    assert_eq!(bed.sent.iter().map(rdi).collect::<Vec<_>>(), [false, false, false, false, true]);
    bed.get(message(2, 1));
    bed.run(1000);
    bed.get(Message { interval: 5, ..message(2, 5) });
    bed.run(1500);
    assert_eq!((bed.status("cfm_fault"), bed.is_live()), (Some(LinkValue::Flag(false)), true));
    assert_eq!(bed.status("cfm_flap_count"), Some(LinkValue::Integer(2)));
    assert_eq!(bed.status("cfm_remote_mpids"), Some(LinkValue::Integers(vec![2])));
    assert_eq!((bed.status("cfm_health"), bed.status("cfm_remote_opstate")), (None, None));
    assert!(bed.show().ends_with("Remote MPID 2\n\trecv since check: false\n\topstate: up\n"));
    bed.get(Message { rdi: true, ..message(2, 6) });
    bed.run(3500);
    assert!(bed.show().contains("\tfault: rdi\n"));
    bed.get(message(1, 1));
    let mut other = build(DST_MAC, MacAddr([2, 0, 0, 0, 0, 9]), None, &message(2, 1));
    other[24] = b'x';
    bed.receive(&other);
    other[15] = 3;
    bed.receive(&other);
    bed.receive(&other[..87]);
    bed.get(message(2, 9));
    bed.run(3500);
    let faults = ["maid", "loopback"].map(str::to_string).to_vec();
    assert_eq!(bed.status("cfm_fault_status"), Some(LinkValue::Texts(faults)));
    assert_eq!(bed.command("cfm/set-fault", &["p1", "TRUE"]), Ok("OK".to_string()));
    assert!(bed.show().starts_with("---- p1 ----\nMPID 1: fault_override\n\tfault: override\n"));
    assert_eq!(bed.command("cfm/set-fault", &["false"]), Ok("OK".to_string()));
    assert!(bed.is_live() && !bed.show().contains("\tfault:"));
    assert_eq!(bed.command("cfm/set-fault", &["normal"]), Ok("OK".to_string()));
    assert_eq!(bed.command("cfm/set-fault", &["p9", "true"]), Err("no such CFM object".to_string()));
    assert_eq!(bed.command("cfm/set-fault", &["bogus"]), Err("unknown fault string".to_string()));
    assert_eq!(bed.command("cfm/show", &["p9"]), Err("no such CFM object".to_string()));
    bed.run(3500);
    let expected = [
        "CFM faults changed from [] to [recv].",
        "received a CCM with an unexpected interval (5) from RMP 2",
        "(mpid 2) detected sequence numbers which indicate possible connectivity problems (previous 1) (current 5)",
        "CFM faults changed from [recv] to [].",
        "CFM faults changed from [] to [rdi].",
        "received CCM with local MPID 1",
        "Received unexpected remote MAID from MAC 02:00:00:00:00:09",
        "Received an unsupported 802.1ag message. (opcode 3)",
        "Received an unparseable 802.1ag CCM heartbeat.",
        "(mpid 2) detected sequence numbers which indicate possible connectivity problems (previous 6) (current 9)",
        "CFM faults changed from [rdi] to [maid loopback].",
        "Received no CCM from RMP 1 in the last 7000ms",
        "Received no CCM from RMP 2 in the last 7000ms",
        "CFM faults changed from [maid loopback] to [recv].",
    ];
    assert_eq!(bed.lines, expected.map(|line| format!("p1: {line}")));
}

/// As in OVS 3.5, the 257th maintenance point is no fault.
#[test]
fn remotes_are_bounded() {
    let mut bed = Bed::new(&config(5, &[]));
    for mpid in 100..1000 {
        bed.get(message(mpid, 1));
    }
    bed.run(3500);
    assert_eq!(bed.show().matches("Remote MPID").count(), REMOTES_MAX);
    assert!(bed.is_live() && bed.status("cfm_health").is_none());
    assert!(bed.lines[0].ends_with("dropped CCM with MPID 356 from MAC 02:00:00:00:00:09"));
    assert!(bed.lines.len() < 40, "a flood writes few lines: {}", bed.lines.len());
}

#[test]
fn health_is_the_share_of_messages() {
    let mut bed = Bed::new(&config(5, &[]));
    let (mut seq, mut healths) = (0, Vec::new());
    for second in 0..120 {
        // Two of three messages in the second minute.
        if second < 60 || second % 3 != 0 {
            seq += 1;
            bed.get(message(2, seq));
        }
        bed.run(1000);
        if let Some(LinkValue::Integer(health)) = bed.status("cfm_health") {
            healths.push(health);
        }
    }
    healths.dedup();
    assert_eq!((healths[0], healths.len() > 1), (100, true), "{healths:?}");
    assert!((60..75).contains(healths.last().unwrap()), "{healths:?}");
}

/// Received packets replace messages for a hundred intervals, as long as they increase.
#[test]
fn demand_mode_counts_received_packets() {
    let demand = [("extended", "true"), ("demand", "true"), ("interval", "200")];
    let mut bed = Bed::new(&config(9, &demand));
    let down = Message { interval_ms: 200, mpid_extended: 2, is_down: true, seq: 1, ..Message::default() };
    bed.receive(&build(DST_MAC_EXTENDED, MacAddr([2; 6]), None, &down));
    bed.run(700);
    assert_eq!(bed.status("cfm_remote_opstate"), Some(LinkValue::Text("down".to_string())));
    assert!(!bed.is_live(), "operationally down is not live");
    assert_eq!(bed.status("cfm_fault"), Some(LinkValue::Flag(false)));
    for _ in 0..27 {
        bed.env.rx_packets += 1;
        bed.run(700);
        assert_eq!(bed.status("cfm_fault"), Some(LinkValue::Flag(false)));
    }
    for _ in 0..3 {
        bed.env.rx_packets += 1;
        bed.run(700);
    }
    assert_eq!(bed.status("cfm_fault"), Some(LinkValue::Flag(true)), "100 intervals are over");
    bed.receive(&build(DST_MAC_EXTENDED, MacAddr([2; 6]), None, &down));
    bed.run(700);
    assert_eq!(bed.status("cfm_fault"), Some(LinkValue::Flag(false)));
    bed.run(2800);
    assert_eq!(bed.status("cfm_fault"), Some(LinkValue::Flag(true)), "no packet arrived");
}

/// Another interval sends at once; other settings keep the timers.
#[test]
fn settings_change_while_it_runs() {
    let mut bed = Bed::new(&config(1, &[("ccm_vlan", "random")]));
    assert_eq!(bed.sent.pop().unwrap()[12..16], [0x81, 0, 0x0f, 0xff]);
    bed.run(500);
    let place = port("p1", MacAddr([4; 6]));
    assert_eq!(bed.sessions.configure(&place, &config(3, &[]), bed.now_ms, &mut bed.env), bed.id);
    bed.run(400);
    assert_eq!(bed.sent.len(), 0);
    bed.run(100);
    let frame = bed.sent.pop().unwrap();
    assert_eq!((&frame[6..12], parse_frame(&frame).unwrap().message.unwrap().mpid), (&[4; 6][..], 3));
    bed.sessions.configure(&place, &config(3, &[("interval", "100")]), bed.now_ms, &mut bed.env);
    bed.run(0);
    assert_eq!(bed.sent.len(), 1);
    bed.run(300);
    assert_eq!(bed.status("cfm_fault"), Some(LinkValue::Flag(false)));
    bed.run(100);
    assert_eq!(bed.status("cfm_fault"), Some(LinkValue::Flag(true)));
    bed.sessions.remove(bed.id);
    assert_eq!((bed.sessions.next_wakeup(), bed.sessions.find("p1")), (None, None));
}
