//! Control packets of BFD (RFC 5880 §4.1): values, wire form, reasons to refuse one.
//!
//! [`Message::parse`] makes the checks of RFC 5880 §6.8.6 that need no session, in the order of OVS. As there, a length
//! field above 24 bytes is accepted, and the rest of the packet is ignored. Authentication is refused.

use packet::headers::be32;
use std::fmt;
use thiserror::Error;

/// Bytes of a control packet without authentication.
pub const MESSAGE_BYTES: usize = 24;
/// The only version of the protocol.
pub const VERSION: u8 = 1;

/// State of a session (RFC 5880 §4.1, field Sta), in the order of its numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum State {
    /// Held down by configuration of that system.
    AdminDown = 0,
    /// No session.
    #[default]
    Down = 1,
    /// The other system is heard, and does not hear this one yet.
    Init = 2,
    /// Both systems hear each other.
    Up = 3,
}

impl State {
    /// From the two low bits.
    fn from_bits(bits: u8) -> State {
        match bits & 3 {
            0 => State::AdminDown,
            1 => State::Down,
            2 => State::Init,
            _ => State::Up,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::AdminDown => "admin_down",
            State::Down => "down",
            State::Init => "init",
            State::Up => "up",
        })
    }
}

/// Reason of the last change of state (RFC 5880 §4.1, field Diag): five bits, of which nine values have names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Diagnostic(u8);

impl Diagnostic {
    /// No diagnostic.
    pub const NONE: Diagnostic = Diagnostic(0);
    /// No packet came within the detection time.
    pub const EXPIRED: Diagnostic = Diagnostic(1);
    /// The other system signalled the end of the session.
    pub const REMOTE_DOWN: Diagnostic = Diagnostic(3);
    /// The path is down.
    pub const PATH_DOWN: Diagnostic = Diagnostic(5);
    /// A path behind that system is down.
    pub const CONCATENATED_PATH_DOWN: Diagnostic = Diagnostic(6);
    /// A path behind that system is down in the other direction.
    pub const REVERSE_CONCATENATED_PATH_DOWN: Diagnostic = Diagnostic(8);

    /// From the five low bits.
    pub fn from_bits(bits: u8) -> Diagnostic {
        Diagnostic(bits & 0x1f)
    }

    /// The number.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether a system with this diagnostic forwards nothing, even while its session is up.
    pub fn is_path_down(self) -> bool {
        matches!(
            self,
            Diagnostic::PATH_DOWN
                | Diagnostic::CONCATENATED_PATH_DOWN
                | Diagnostic::REVERSE_CONCATENATED_PATH_DOWN
        )
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "No Diagnostic",
            1 => "Control Detection Time Expired",
            2 => "Echo Function Failed",
            3 => "Neighbor Signaled Session Down",
            4 => "Forwarding Plane Reset",
            5 => "Path Down",
            6 => "Concatenated Path Down",
            7 => "Administratively Down",
            8 => "Reverse Concatenated Path Down",
            _ => "Invalid Diagnostic",
        })
    }
}

/// Flags of a control packet (RFC 5880 §4.1), six bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Reserved for point-to-multipoint extensions.
    pub const MULTIPOINT: Flags = Flags(1);
    /// Demand mode.
    pub const DEMAND: Flags = Flags(2);
    /// An authentication section follows.
    pub const AUTH: Flags = Flags(4);
    /// The protocol survives the control plane of its system.
    pub const CONTROL_PLANE_INDEPENDENT: Flags = Flags(8);
    /// The answer to a poll.
    pub const FINAL: Flags = Flags(16);
    /// The sender awaits an answer.
    pub const POLL: Flags = Flags(32);

    /// The names in text, in the order of text.
    const NAMES: [(Flags, &'static str); 6] = [
        (Flags::MULTIPOINT, "multipoint"),
        (Flags::DEMAND, "demand"),
        (Flags::AUTH, "auth"),
        (Flags::CONTROL_PLANE_INDEPENDENT, "ctl"),
        (Flags::FINAL, "final"),
        (Flags::POLL, "poll"),
    ];

    /// From the six low bits.
    pub fn from_bits(bits: u8) -> Flags {
        Flags(bits & 0x3f)
    }

    /// The bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `flags` are set.
    pub fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Sets `flags`.
    pub fn set(&mut self, flags: Flags) {
        self.0 |= flags.0;
    }

    /// Clears `flags`.
    pub fn clear(&mut self, flags: Flags) {
        self.0 &= !flags.0;
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Flags::NAMES.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name).collect();
        if names.is_empty() { f.write_str("none") } else { f.write_str(&names.join(" ")) }
    }
}

/// A reason to refuse a received packet. The texts are those of OVS's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// The time to live is not 255, so the packet may come from beyond the link (RFC 5881 §5).
    #[error("Time to live {0} instead of 255")]
    TimeToLive(u8),
    /// No UDP payload.
    #[error("No UDP payload")]
    NoPayload,
    /// Fewer than [`MESSAGE_BYTES`] bytes.
    #[error("Received too-short BFD control message (only {0} bytes long, at least 24 required)")]
    TooShort(usize),
    /// Another version than 1.
    #[error("Incorrect version")]
    Version(u8),
    /// An authentication section.
    #[error("Authenticated control message with authentication disabled")]
    Authenticated,
    /// A length field below [`MESSAGE_BYTES`].
    #[error("Unexpected length")]
    Length(u8),
    /// Multiplier 0.
    #[error("Zero multiplier")]
    ZeroMultiplier,
    /// The multipoint flag.
    #[error("Unsupported multipoint flag")]
    Multipoint,
    /// The sender's discriminator is 0.
    #[error("NULL my_disc")]
    NoMyDiscriminator,
    /// The receiver's discriminator is that of another session.
    #[error("Incorrect your_disc")]
    YourDiscriminator(u32),
    /// The receiver's discriminator is 0 in a state that requires it.
    #[error("Null your_disc")]
    NoYourDiscriminator,
}

/// A control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Reason of the sender's last change of state.
    pub diagnostic: Diagnostic,
    /// The sender's state.
    pub state: State,
    /// Flags.
    pub flags: Flags,
    /// Detection time multiplier, 1 to 255.
    pub multiplier: u8,
    /// The sender's discriminator, not 0.
    pub my_discriminator: u32,
    /// The receiver's discriminator, 0 if unknown.
    pub your_discriminator: u32,
    /// Interval at which the sender wants to transmit, microseconds.
    pub min_tx_us: u32,
    /// Smallest interval between packets that the sender can receive, microseconds.
    pub min_rx_us: u32,
    /// Interval for echo packets; 0 for none.
    pub min_echo_rx_us: u32,
}

impl Message {
    /// Parses a UDP payload.
    ///
    /// # Errors
    /// The packet is to be ignored, for the returned reason.
    pub fn parse(payload: &[u8]) -> Result<Message, Refusal> {
        let Some(&[version_diag, state_flags, multiplier, length]) = payload.first_chunk() else {
            return Err(Refusal::TooShort(payload.len()));
        };
        let word = |at| be32(payload, at).ok_or(Refusal::TooShort(payload.len()));
        let message = Message {
            diagnostic: Diagnostic::from_bits(version_diag),
            state: State::from_bits(state_flags >> 6),
            flags: Flags::from_bits(state_flags),
            multiplier,
            my_discriminator: word(4)?,
            your_discriminator: word(8)?,
            min_tx_us: word(12)?,
            min_rx_us: word(16)?,
            min_echo_rx_us: word(20)?,
        };
        match message {
            _ if version_diag >> 5 != VERSION => Err(Refusal::Version(version_diag >> 5)),
            Message { flags, .. } if flags.has(Flags::AUTH) => Err(Refusal::Authenticated),
            _ if usize::from(length) < MESSAGE_BYTES => Err(Refusal::Length(length)),
            Message { multiplier: 0, .. } => Err(Refusal::ZeroMultiplier),
            Message { flags, .. } if flags.has(Flags::MULTIPOINT) => Err(Refusal::Multipoint),
            Message { my_discriminator: 0, .. } => Err(Refusal::NoMyDiscriminator),
            Message { your_discriminator: 0, state, .. } if state > State::Down => {
                Err(Refusal::NoYourDiscriminator)
            }
            _ => Ok(message),
        }
    }

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = VERSION << 5 | self.diagnostic.0;
        bytes[1] = (self.state as u8) << 6 | self.flags.0;
        bytes[2] = self.multiplier;
        bytes[3] = MESSAGE_BYTES as u8;
        let words = [
            self.my_discriminator,
            self.your_discriminator,
            self.min_tx_us,
            self.min_rx_us,
            self.min_echo_rx_us,
        ];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}
