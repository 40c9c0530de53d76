//! TCP segments of one connection, written in words.
//!
//! A word is the sender (`c`: client, `s`: server), a colon, and the flags (`S`, `A`, `F`, `R`, `P`, `U`, `-`: none).
//! Modifiers follow: `+N` bytes of data, `@N` offset of the sequence number, `^N` offset of the acknowledgement, `*` a
//! new initial sequence number, `z` the sequence number 0, `!` a wrong checksum. `c:again` repeats the client's last segment.
//! A segment with `@`, `z` or `!` takes no sequence numbers.

use sim::Rng;

/// A segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) by_server: bool,
    pub(super) flags: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) scale: Option<u8>,
    pub(super) bytes: u16,
    pub(super) wrong_checksum: bool,
}

/// A named sequence of segments.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) name: String,
    pub(super) words: Vec<String>,
    pub(super) segments: Vec<Segment>,
}

const FLAGS: &str = "FSRPAU";

/// Windows of both sides, and scales of their SYNs.
type Windows = [(u16, Option<u8>); 2];

impl Script {
    /// The segments of words; initial sequence numbers come from `rng`.
    pub(super) fn new(name: &str, words: &str, windows: Windows, rng: &mut Rng) -> Script {
        let words: Vec<String> = words.split_whitespace().map(str::to_string).collect();
        // Some wrap within the connection.
        let mut initial =
            || if rng.one_in(4) { u32::MAX - rng.below(150) as u32 } else { rng.number() as u32 };
        let mut next = [initial(), initial()];
        let mut last: [Option<Segment>; 2] = [None; 2];
        let mut segments = Vec::new();
        for word in &words {
            let (side, what) = word.split_once(':').unwrap();
            let side = usize::from(side == "s");
            let segment = if what == "again" {
                last[side].unwrap()
            } else {
                if what.contains('*') {
                    next[side] = initial();
                }
                segment(side, what, &mut next, windows)
            };
            last[side] = Some(segment);
            segments.push(segment);
        }
        Script { name: name.to_string(), words, segments }
    }
}

fn segment(side: usize, what: &str, next: &mut [u32; 2], windows: Windows) -> Segment {
    let at = what.find(|c: char| !c.is_ascii_uppercase() && c != '-').unwrap_or(what.len());
    let (letters, mut rest) = what.split_at(at);
    let flags = letters.chars().filter_map(|c| FLAGS.find(c)).fold(0, |flags, bit| flags | 1 << bit);
    let syn = letters.contains('S');
    let ack = if letters.contains('A') { next[1 - side] } else { 0 };
    let (window, scale) = windows[side];
    let mut segment = Segment {
        by_server: side == 1,
        flags,
        seq: next[side],
        ack,
        window,
        scale: scale.filter(|_| syn),
        bytes: 0,
        wrong_checksum: false,
    };
    let mut advances = true;
    while let Some(modifier) = rest.chars().next() {
        let end = rest[1..].find(|c| "+@^*z!".contains(c)).map_or(rest.len(), |n| n + 1);
        let number = || rest[1..end].parse::<i64>().unwrap();
        match modifier {
            '+' => segment.bytes = number() as u16,
            '@' => (segment.seq, advances) = (segment.seq.wrapping_add(number() as u32), false),
            '^' => segment.ack = segment.ack.wrapping_add(number() as u32),
            'z' => (segment.seq, advances) = (0, false),
            '!' => (segment.wrong_checksum, advances) = (true, false),
            '*' => {}
            other => panic!("modifier {other} of {what}"),
        }
        rest = &rest[end..];
    }
    if advances {
        let length = u32::from(segment.bytes) + u32::from(syn) + u32::from(letters.contains('F'));
        next[side] = next[side].wrapping_add(length);
    }
    segment
}

/// Usual windows, without scale.
const PLAIN: Windows = [(64_000, None), (32_000, None)];
/// Both sides scale.
const SCALED: Windows = [(1000, Some(7)), (2000, Some(5))];
/// One side offers a scale.
const ONE_SIDED: Windows = [(8000, Some(4)), (16_000, None)];

/// Sequences of everyday and of unusual connections.
const NAMED: [(&str, Windows, &str); 34] = [
    ("client closes", SCALED, "c:S s:SA c:A c:PA+100 s:A s:PA+500 c:A c:FA s:A s:FA c:A"),
    ("server closes", PLAIN, "c:S s:SA c:A c:PA+10 s:PA+20 c:A s:FA c:A c:FA s:A"),
    ("both close", PLAIN, "c:S s:SA c:A c:PA+10 s:A c:FA s:FA^-1 c:A s:A"),
    ("half closed", SCALED, "c:S s:SA c:A c:FA s:A s:PA+100 c:A s:PA+100 c:A s:FA c:A"),
    ("FIN with data", PLAIN, "c:S s:SA c:A c:FPA+100 s:FPA+50 c:A"),
    (
        "retransmissions",
        PLAIN,
        "c:S c:again s:SA s:again c:A c:PA+100 c:again s:A s:PA+9 s:again c:A c:FA c:again s:A s:FA s:again c:A c:again",
    ),
    ("partial retransmission", PLAIN, "c:S s:SA c:A c:PA+100 c:PA@-50+150 s:A c:A@-1+1 s:A c:A@-1"),
    ("refused, then accepted", PLAIN, "c:S s:RAz c:S* s:SA c:A c:PA+5 s:A"),
    ("refused, same number", PLAIN, "c:S s:RAz c:again s:RAz c:again"),
    ("client resets", PLAIN, "c:S s:SA c:A c:PA+10 s:A c:RA s:A s:PA+10 c:R"),
    ("server resets", PLAIN, "c:S s:SA c:A c:PA+10 s:RA c:A c:PA+5"),
    ("reset without acknowledgement", PLAIN, "c:S s:SA c:A c:R s:PA+10 c:R"),
    ("reset of a half open one", PLAIN, "c:S s:SA c:R c:S* s:SA* c:A"),
    ("reset out of the window", PLAIN, "c:S s:SA c:A c:PA+10 s:A c:R@200000 s:PA+10 c:A c:PA+10 s:A"),
    ("reset within the window", PLAIN, "c:S s:SA c:A c:PA+10 s:A c:R@1000 s:A c:R@10 c:A c:PA+10 s:A"),
    ("reused after close", SCALED, "c:S s:SA c:A c:PA+10 s:A c:FA s:A s:FA c:A c:S* s:SA* c:A c:PA+10 s:A"),
    ("reused after reset", PLAIN, "c:S s:SA c:A c:PA+10 s:RA c:S* s:SA* c:A c:PA+10 s:A"),
    ("reused by the server", PLAIN, "c:S s:SA c:A c:FA s:FA c:A s:S* c:SA* s:A s:PA+10 c:A"),
    ("reused while half closed", PLAIN, "c:S s:SA c:A c:FA s:A c:S@50000 s:A"),
    ("SYN of an established one", PLAIN, "c:S s:SA c:A c:PA+10 s:A c:S@50000 s:A c:R@50000 c:PA+10 s:A"),
    ("simultaneous open", PLAIN, "c:S s:S c:SA@-1 s:SA@-1 c:A s:A c:PA+10 s:A s:PA+10 c:A"),
    ("picked up, client first", PLAIN, "c:PA+100 s:A s:PA+200 c:A c:PA+10 s:A c:FA s:FA c:A"),
    ("picked up, server first", PLAIN, "s:PA+100 c:A c:PA+200 s:A s:FA c:FA s:A"),
    ("picked up, one side", PLAIN, "c:A c:PA+100 c:PA+100 c:PA+100 c:FA"),
    ("acknowledged SYN first", PLAIN, "s:SA c:A c:PA+10 s:A"),
    ("reset first", PLAIN, "c:R c:RA s:RA"),
    ("FIN first", PLAIN, "c:FA s:FA c:A"),
    (
        "contradictory flags",
        PLAIN,
        "c:SF@0 c:SR@0 c:-@0 c:FPU@0 c:P@0 c:S s:SAF@0 s:SA c:A c:FPU@0 c:- s:SR@0 c:PA+10 s:A",
    ),
    (
        "data out of the window",
        PLAIN,
        "c:S s:SA c:A c:PA+10 s:A c:PA@1000000+10 s:PA@-1000000+10 c:PA+10 s:A",
    ),
    (
        "acknowledgement out of the window",
        PLAIN,
        "c:S s:SA c:A c:PA+10 s:A^200000 s:A^-200000 s:A c:PA+10 s:A",
    ),
    ("wrong checksums", PLAIN, "c:S! c:S s:SA! s:SA c:A! c:A c:PA+10! c:PA+10 s:A! s:A c:R! c:FA s:FA c:A"),
    ("large windows", SCALED, "c:S s:SA c:A s:PA+1400 s:PA@60000+1000 s:PA@125000+1000 s:PA@140000+1000 c:A"),
    ("scale of one side", ONE_SIDED, "c:S s:SA c:A s:PA+1400 c:A s:PA@7000+1000 s:PA@9000+1000 c:PA+100 s:A"),
    ("handshake with a wrong acknowledgement", PLAIN, "c:S s:SA^5 c:R c:again s:SA c:A c:PA+10 s:A"),
];

/// All named sequences.
pub(super) fn named() -> Vec<Script> {
    let mut rng = Rng::new(1);
    NAMED.iter().map(|(name, windows, words)| Script::new(name, words, *windows, &mut rng)).collect()
}

/// A random sequence without contradictions: a handshake, data, retransmissions, and an end by FIN or reset.
pub(super) fn usual(seed: u64, length: usize) -> Script {
    let mut rng = Rng::new(seed);
    let mut words: Vec<&str> = vec!["c:S", "s:SA", "c:A"];
    let data =
        ["c:PA+100", "s:PA+900", "c:A", "s:A", "c:PA+1", "s:PA+40", "c:again", "s:again", "c:A@-1", "s:A!"];
    while words.len() < length {
        words.push(*rng.pick(&data));
    }
    let ends = [
        "c:FA s:A s:PA+40 c:A s:FA c:A c:again",
        "s:FA c:A c:FA s:A s:again",
        "c:FA s:FA^-1 c:A s:A",
        "c:RA s:A",
        "s:RA c:A",
        "c:FA s:FA c:A c:S* s:SA* c:A c:PA+10 s:A",
    ];
    words.push(*rng.pick(&ends));
    let windows = *rng.pick(&[PLAIN, SCALED, ONE_SIDED]);
    Script::new(&format!("usual, seed {seed}"), &words.join(" "), windows, &mut rng)
}

/// A random sequence: parts of handshakes, data, many FINs, resets and segments out of any order.
pub(super) fn unusual(seed: u64, length: usize) -> Script {
    let mut rng = Rng::new(seed);
    let mut words: Vec<&str> = if rng.one_in(6) { vec!["c:PA+10"] } else { vec!["c:S", "s:SA", "c:A"] };
    words.truncate(rng.range(1, 9) as usize);
    let data = ["c:PA+100", "s:PA+1000", "c:A", "s:A", "c:PA+1", "s:PA+40"];
    let ends = ["c:FA", "s:FA", "c:A", "s:A"];
    let odd = [
        "c:again",
        "s:A@-1",
        "c:S*",
        "s:SA",
        "c:RA",
        "s:R",
        "c:R@70",
        "c:PA@500000+10",
        "s:A^300000",
        "c:A!",
        "s:PA@-900+900",
        "s:S",
        "c:-",
        "c:SF",
        "s:PA@100000+7",
    ];
    while words.len() < length {
        let ending = words.len() > length / 2;
        words.push(match rng.below(8) {
            0 => *rng.pick(&odd),
            1..4 if ending => *rng.pick(&ends),
            _ => *rng.pick(&data),
        });
    }
    let windows = *rng.pick(&[PLAIN, SCALED, ONE_SIDED]);
    Script::new(&format!("unusual, seed {seed}"), &words.join(" "), windows, &mut rng)
}
