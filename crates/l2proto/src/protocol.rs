//! [`LinkProtocol`]: the interface of a protocol that runs on single ports. One folder and one row of the registry per
//! protocol ([`registry`](crate::registry)).
//!
//! A protocol has two parts. The functions of [`LinkProtocol`] without `self` are pure: they parse settings, and select
//! control packets for handlers and translations. [`Engine`] owns all sessions of the protocol, one per port, and runs
//! in the thread `link_protocols` of `sluiced`. Neither trait has default methods but [`LinkProtocol::initial_state`], so an
//! incomplete protocol does not compile.

use flow::{Flow, FlowKey, MacAddr, Mask, OfPort};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Number of a session, chosen by its engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u32);

/// The port of a session. A change of any value configures the session again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkPort {
    /// Name of the interface.
    pub interface: String,
    /// Name of its row of `Port`, which members of a bond share.
    pub port: String,
    /// Name of its bridge.
    pub bridge: String,
    /// OpenFlow number; [`OfPort::LOCAL`] is the bridge's own port.
    pub of_port: OfPort,
    /// Address of the interface.
    pub mac: MacAddr,
    /// Address of the bridge.
    pub bridge_mac: MacAddr,
    /// Whether it has a carrier and is administratively up.
    pub is_up: bool,
    /// Speed in Mbit/s, 0 unknown.
    pub speed_mbps: u32,
    /// Whether it is full duplex.
    pub is_full_duplex: bool,
}

impl LinkPort {
    /// A port of that interface alone, without a carrier.
    pub(crate) fn named(interface: &str) -> LinkPort {
        LinkPort {
            interface: interface.to_string(),
            port: interface.to_string(),
            bridge: String::new(),
            of_port: OfPort::NONE,
            mac: MacAddr::default(),
            bridge_mac: MacAddr::default(),
            is_up: false,
            speed_mbps: 0,
            is_full_duplex: false,
        }
    }
}

/// Values that sessions request from their driver.
pub trait Environment {
    /// Packets received so far by the session's device. Requested only if [`RxUse::by_device`].
    fn rx_packets(&mut self, session: SessionId) -> u64;
    /// A random number below `below` (at least 1).
    fn random(&mut self, below: u32) -> u32;
}

/// A received packet that a session claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// Time to live of its IP header; 0 without one.
    pub ttl: u8,
    /// Its payload ([`LinkProtocol::payload`]), if it has one.
    pub payload: Option<&'a [u8]>,
}

/// A frame to send out of a session's port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmission {
    /// Its bytes.
    pub frame: Box<[u8]>,
    /// Bytes from the start that translation may examine: frames that differ behind them only are forwarded alike.
    pub header_bytes: usize,
    /// Whether a tunnel marks it as a control packet.
    pub oam: bool,
}

/// Effect of sessions on their port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// Whether the port forwards packets. A port that does not forward neither receives nor sends data.
    pub may_forward: bool,
    /// Whether `NORMAL` and `learn` take addresses from packets of the port.
    pub may_learn: bool,
    /// Whether the port is live for groups, `bundle` and OpenFlow port states.
    pub is_live: bool,
    /// Whether a protocol of bonds has found a partner, or awaits one still (`lacp_status` of OVS).
    pub is_negotiated: bool,
    /// State of the port in a spanning tree; `None` outside of all.
    pub tree: Option<TreeState>,
}

/// Phase of a port in a spanning tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreePhase {
    /// Without a carrier, or its tree does not know it yet.
    Disabled,
    /// Neither sends nor forwards; the rapid protocol has no such phase.
    Blocking,
    /// On the way to learning; a discarding port of the rapid protocol.
    Listening,
    /// Learns addresses.
    Learning,
    /// Forwards.
    Forwarding,
}

/// State of a port in a spanning tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeState {
    /// Whether the tree is one of RSTP.
    pub is_rapid: bool,
    /// Phase.
    pub phase: TreePhase,
}

/// Effect of a protocol's liveness on its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// The port is live only if the session is.
    Required,
    /// The session monitors the port: the port is live if one of its monitors is.
    Monitor,
}

impl LinkState {
    /// No restriction.
    pub const UP: LinkState =
        LinkState { may_forward: true, may_learn: true, is_live: true, is_negotiated: false, tree: None };

    /// The effect of a port's state in a spanning tree. A port without a carrier stops too: it begins again when it has one.
    pub const fn of_tree(tree: TreeState) -> LinkState {
        let may_forward = matches!(tree.phase, TreePhase::Forwarding);
        let may_learn = may_forward || matches!(tree.phase, TreePhase::Learning);
        LinkState { may_forward, may_learn, tree: Some(tree), ..LinkState::UP }
    }

    /// The restrictions of both.
    #[must_use]
    pub fn and(self, other: LinkState) -> LinkState {
        LinkState {
            may_forward: self.may_forward && other.may_forward,
            may_learn: self.may_learn && other.may_learn,
            is_live: self.is_live && other.is_live,
            is_negotiated: self.is_negotiated || other.is_negotiated,
            tree: self.tree.or(other.tree),
        }
    }
}

/// Received data that a session counts as signs of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxUse {
    /// Packets of flows: translations count them ([`Engine::account_rx`]).
    pub by_flows: bool,
    /// Packets of the device ([`Environment::rx_packets`]).
    pub by_device: bool,
}

/// Database tables with settings of links.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Table {
    /// `Bridge`.
    Bridge,
    /// `Port`.
    Port,
    /// `Interface`.
    Interface,
    /// `AutoAttach`: the row that the bridge refers to.
    AutoAttach,
}

/// Value of a database column.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LinkValue {
    /// A boolean.
    Flag(bool),
    /// An integer.
    Integer(i64),
    /// A string.
    Text(String),
    /// A set of strings.
    Texts(Vec<String>),
    /// A set of integers.
    Integers(Vec<i64>),
    /// A map of strings.
    Map(BTreeMap<String, String>),
    /// A map of integers.
    Numbers(BTreeMap<i64, i64>),
    /// A map of counters.
    Counters(BTreeMap<String, i64>),
}

/// Kind of a status column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnKind {
    /// At most one value.
    Optional,
    /// A set.
    Set,
    /// A map. Sessions and the switch may share it: each has its own keys.
    Map,
}

/// A status column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusColumn {
    /// Table: `Interface`; `Port` and `Bridge` for those of its row.
    pub table: Table,
    /// Name.
    pub name: &'static str,
    /// Kind.
    pub kind: ColumnKind,
    /// Written with the statistics, not with each change.
    pub is_statistics: bool,
}

/// Values of status columns.
pub type Status = BTreeMap<(Table, &'static str), LinkValue>;

/// The rows of an interface, its port and its bridge. A bridge's own port may lack rows of its own.
pub trait Columns {
    /// The value of a column; `None` if it is unset or the row is absent.
    fn column(&self, table: Table, name: &str) -> Option<LinkValue>;
    /// Whether the interface is the bridge's own port.
    fn is_local(&self) -> bool;
    /// Number of interfaces of the port: more than one is a bond.
    fn members(&self) -> usize;
    /// Whether the port gets the copies of a mirror.
    fn is_mirror_output(&self) -> bool {
        false
    }
}

/// A value that settings ignore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IgnoredSetting {
    /// Table of the row.
    pub table: Table,
    /// Column and key, as in `bfd:min_rx`.
    pub place: String,
    /// Message for the row.
    pub message: String,
}

/// Level of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineLevel {
    /// ERR.
    Error,
    /// WARN.
    Warning,
    /// INFO.
    Info,
    /// DBG.
    Debug,
}

/// A log line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Log module.
    pub module: &'static str,
    /// Level.
    pub level: LineLevel,
    /// Text.
    pub text: String,
}

/// A change of learned addresses and multicast groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LearnedChange {
    /// Flush the bridge of the session.
    FlushBridge,
    /// Flush the port of the session.
    FlushPort,
    /// The addresses of the session's port move to the port of that session.
    MoveTo(SessionId),
}

/// A VLAN that auto-attach adds to `Port.trunks` or removes from it. The port is the one with the name of the session's
/// interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TrunkChange {
    /// VLAN.
    pub vlan: u16,
    /// Whether the port carries it from now on.
    pub is_added: bool,
}

/// Log lines and changes of a session since the last report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The session.
    pub id: SessionId,
    /// Whether status columns or link state may have changed.
    pub status_changed: bool,
    /// Lines for the log.
    pub lines: Vec<LogLine>,
    /// Lines lost because too many waited.
    pub lines_lost: u64,
    /// Changes of learned addresses, in this order.
    pub learned: Vec<LearnedChange>,
    /// Changes of the VLANs of its port, in this order.
    pub trunks: Vec<TrunkChange>,
}

impl Report {
    /// A report without changes.
    pub const fn of(id: SessionId) -> Report {
        Report {
            id,
            status_changed: false,
            lines: Vec::new(),
            lines_lost: 0,
            learned: Vec::new(),
            trunks: Vec::new(),
        }
    }
}

/// A command of the control socket.
pub struct ProtocolCommand<E: ?Sized + 'static> {
    /// Name, as in `bfd/show`.
    pub name: &'static str,
    /// Arguments as `list-commands` prints them.
    pub arguments: &'static str,
    /// Smallest number of arguments.
    pub min_args: usize,
    /// Largest number of arguments.
    pub max_args: usize,
    /// One line of help.
    pub help: &'static str,
    /// Executes it; the result is the text of the reply or of the error. Times are milliseconds.
    pub run: fn(&mut E, args: &[String], now_ms: u64) -> Result<String, String>,
}

/// All sessions of one protocol with their timers. Times are milliseconds of any clock that does not step back.
pub trait Engine: Send {
    /// The session of an interface.
    fn find(&self, name: &str) -> Option<SessionId>;

    /// Removes a session, if it exists.
    fn remove(&mut self, id: SessionId);

    /// A session receives a packet that its claim selects.
    ///
    /// # Errors
    /// The reason to ignore the packet.
    fn input(
        &mut self,
        id: SessionId,
        received: Received<'_>,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Result<(), String>;

    /// Counts packets of flows from the port of a session, if its settings request that ([`RxUse::by_flows`]).
    fn account_rx(&mut self, id: SessionId, packets: u64, now_ms: u64);

    /// Serves at most `limit` due sessions, and appends the frames to send to `out`. Returns whether more are due.
    fn tick(
        &mut self,
        now_ms: u64,
        limit: usize,
        env: &mut dyn Environment,
        out: &mut Vec<(SessionId, Transmission)>,
    ) -> bool;

    /// Time of the earliest work: 0 is at once, `None` never.
    fn next_wakeup(&self) -> Option<u64>;

    /// Takes the report of a session of which something changed.
    fn take_report(&mut self) -> Option<Report>;

    /// Effect of a session on its port; without the session none.
    fn link_state(&mut self, id: SessionId, now_ms: u64) -> LinkState;

    /// The state of a session as one line of text for another process; `None` without the session.
    fn saved(&self, id: SessionId, now_ms: u64) -> Option<String>;

    /// Keeps the state of a former session: the next new session of the interface goes on from it, in silence. `then_ms`
    /// is the time of [`Engine::saved`] on this clock.
    ///
    /// # Errors
    /// The fault of the text, or too many states wait.
    fn restore(&mut self, interface: &str, text: &str, then_ms: u64) -> Result<(), String>;

    /// Forgets the kept states that no session has taken; returns their interfaces.
    fn forget_restored(&mut self) -> Vec<String>;

    /// The values of its [`LinkProtocol::STATUS_COLUMNS`]. A column that is left out is empty.
    fn status(&mut self, id: SessionId, now_ms: u64) -> Status;
}

/// A link protocol.
pub trait LinkProtocol: Engine + Default + 'static {
    /// Name: log module, and word of `slow_path(…)` in datapath actions.
    const NAME: &'static str;
    /// Bit of its packets in slow-path cookies (`enum slow_path_reason` of OVS).
    const OVS_SLOW_PATH: u32;
    /// Reason of `ofproto/trace` for its flows being in the slow path.
    const SLOW_PATH_TEXT: &'static str;
    /// Largest payload that is kept, bytes.
    const PAYLOAD_BYTES_MAX: usize;
    /// Status columns that it writes.
    const STATUS_COLUMNS: &'static [StatusColumn];
    /// Counter of `coverage/show` for control packets that are lost because too many of a session wait.
    const LOST_COUNTER: &'static str;
    /// Effect of a new session on its port.
    const INITIAL_STATE: LinkState;
    /// Effect of the liveness of sessions.
    const LIVENESS: Liveness;
    /// Whether sessions may stop forwarding or learning; otherwise their state is liveness alone.
    const GATES_TRAFFIC: bool;
    /// Commands of the control socket.
    const COMMANDS: &'static [ProtocolCommand<Self>];

    /// Settings of a session.
    type Settings: Clone + PartialEq + Eq + Debug + Send + Sync;
    /// Settings that select the packets of a session: a small value for translations.
    type Claim: Clone + PartialEq + Eq + Debug + Send + Sync;

    /// Whether packets of this key have the form of control packets. Their upcalls are a class of their own.
    fn is_control_packet(key: &FlowKey) -> bool;

    /// Parses the settings of an interface: `None` without a session. Bad values count as absent. A protocol of bridges has its
    /// bridge's status in the session of the bridge's own port.
    fn parse(columns: &dyn Columns) -> (Option<Self::Settings>, Vec<IgnoredSetting>);

    /// Effect of a new session, or one with changed settings, until its engine decides.
    fn initial_state(_settings: &Self::Settings) -> LinkState {
        Self::INITIAL_STATE
    }

    /// The claim of a session with these settings.
    fn claim(settings: &Self::Settings) -> Self::Claim;

    /// Whether a packet is for the session; adds the examined bits to `mask`.
    fn claims(claim: &Self::Claim, flow: &Flow, mask: &mut Mask) -> bool;

    /// The payload of a claimed frame.
    fn payload(frame: &[u8]) -> Option<&[u8]>;

    /// Received data that a session with these settings uses.
    fn rx_use(settings: &Self::Settings) -> RxUse;

    /// Creates or changes the session of an interface, after a change of its settings or its port.
    fn configure(
        &mut self,
        port: &LinkPort,
        settings: &Self::Settings,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> SessionId;
}
