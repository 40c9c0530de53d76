//! The registry of link protocols: one row each in `lib.rs`.
//!
//! The macro makes, from the rows, [`Protocol`](crate::Protocol) with the constants of each, the values that hold settings
//! and claims of any protocol, and [`Engines`](crate::Engines), which owns the engine of each.

use crate::protocol::{Engine, LinkState, Liveness, ProtocolCommand, StatusColumn};
use flow::FlowKey;

/// Constants and functions of a protocol.
pub(crate) struct ProtocolRow {
    pub(crate) name: &'static str,
    pub(crate) ovs_slow_path: u32,
    pub(crate) slow_path_text: &'static str,
    pub(crate) status_columns: &'static [StatusColumn],
    pub(crate) lost_counter: &'static str,
    pub(crate) initial_state: LinkState,
    pub(crate) liveness: Liveness,
    pub(crate) gates_traffic: bool,
    pub(crate) is_control_packet: fn(&FlowKey) -> bool,
    pub(crate) payload: fn(&[u8]) -> Option<&[u8]>,
    pub(crate) payload_bytes_max: usize,
}

/// A command of a protocol, without its engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandRow {
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
}

impl CommandRow {
    pub(crate) const fn of<E: Engine>(command: &ProtocolCommand<E>) -> CommandRow {
        CommandRow {
            name: command.name,
            arguments: command.arguments,
            min_args: command.min_args,
            max_args: command.max_args,
            help: command.help,
        }
    }
}

macro_rules! link_protocols {
    ($($(#[$doc:meta])* $name:ident, $field:ident: $engine:ty;)+) => {
        /// A link protocol.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Protocol {
            $($(#[$doc])* $name,)+
        }

        impl Protocol {
            /// All protocols, in the order in which they claim packets.
            pub const ALL: &'static [Protocol] = &[$(Protocol::$name),+];

            const fn row(self) -> &'static $crate::registry::ProtocolRow {
                use $crate::protocol::LinkProtocol as L;
                use $crate::registry::ProtocolRow;
                match self {
                    $(Protocol::$name => &ProtocolRow {
                        name: <$engine as L>::NAME,
                        ovs_slow_path: <$engine as L>::OVS_SLOW_PATH,
                        slow_path_text: <$engine as L>::SLOW_PATH_TEXT,
                        status_columns: <$engine as L>::STATUS_COLUMNS,
                        lost_counter: <$engine as L>::LOST_COUNTER,
                        initial_state: <$engine as L>::INITIAL_STATE,
                        liveness: <$engine as L>::LIVENESS,
                        gates_traffic: <$engine as L>::GATES_TRAFFIC,
                        is_control_packet: <$engine as L>::is_control_packet,
                        payload: <$engine as L>::payload,
                        payload_bytes_max: <$engine as L>::PAYLOAD_BYTES_MAX,
                    },)+
                }
            }

            /// Commands of the control socket, with their number for [`Engines::run`].
            pub fn commands(self) -> impl Iterator<Item = (usize, $crate::registry::CommandRow)> {
                use $crate::protocol::LinkProtocol as L;
                use $crate::registry::CommandRow;
                let rows: Vec<CommandRow> = match self {
                    $(Protocol::$name => <$engine as L>::COMMANDS.iter().map(CommandRow::of).collect(),)+
                };
                rows.into_iter().enumerate()
            }
        }

        /// Settings of a session.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum LinkSettings {
            $($(#[$doc])* $name(<$engine as $crate::protocol::LinkProtocol>::Settings),)+
        }

        impl LinkSettings {
            /// The sessions of an interface, one of each protocol at most, in the order of [`Protocol::ALL`].
            pub fn parse(
                columns: &dyn $crate::protocol::Columns,
            ) -> (Vec<LinkSettings>, Vec<$crate::protocol::IgnoredSetting>) {
                let (mut sessions, mut all_ignored) = (Vec::new(), Vec::new());
                $(
                    let (settings, ignored) =
                        <$engine as $crate::protocol::LinkProtocol>::parse(columns);
                    sessions.extend(settings.map(LinkSettings::$name));
                    all_ignored.extend(ignored);
                )+
                (sessions, all_ignored)
            }

            /// The protocol.
            pub fn protocol(&self) -> Protocol {
                match self {
                    $(LinkSettings::$name(_) => Protocol::$name,)+
                }
            }

            /// The claim of a session with these settings.
            pub fn claim(&self) -> LinkClaim {
                match self {
                    $(LinkSettings::$name(settings) => LinkClaim::$name(
                        <$engine as $crate::protocol::LinkProtocol>::claim(settings),
                    ),)+
                }
            }

            /// Effect of a new session with these settings on its port.
            pub fn initial_state(&self) -> $crate::protocol::LinkState {
                match self {
                    $(LinkSettings::$name(settings) => {
                        <$engine as $crate::protocol::LinkProtocol>::initial_state(settings)
                    })+
                }
            }

            /// Received data that a session with these settings uses.
            pub fn rx_use(&self) -> $crate::protocol::RxUse {
                match self {
                    $(LinkSettings::$name(settings) => {
                        <$engine as $crate::protocol::LinkProtocol>::rx_use(settings)
                    })+
                }
            }
        }

        /// Settings that select the packets of a session.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum LinkClaim {
            $($(#[$doc])* $name(<$engine as $crate::protocol::LinkProtocol>::Claim),)+
        }

        impl LinkClaim {
            /// The protocol.
            pub fn protocol(&self) -> Protocol {
                match self {
                    $(LinkClaim::$name(_) => Protocol::$name,)+
                }
            }

            /// Whether a packet is for the session; adds the examined bits to `mask`.
            pub fn claims(&self, flow: &flow::Flow, mask: &mut flow::Mask) -> bool {
                match self {
                    $(LinkClaim::$name(claim) => {
                        <$engine as $crate::protocol::LinkProtocol>::claims(claim, flow, mask)
                    })+
                }
            }
        }

        /// The engine of each protocol.
        #[derive(Default)]
        pub struct Engines {
            $($field: $engine,)+
        }

        impl Engines {
            /// The engine of a protocol.
            pub fn get(&mut self, protocol: Protocol) -> &mut dyn $crate::protocol::Engine {
                match protocol {
                    $(Protocol::$name => &mut self.$field,)+
                }
            }

            /// Time of the earliest work of all: 0 is at once, `None` never.
            pub fn next_wakeup(&self) -> Option<u64> {
                use $crate::protocol::Engine as E;
                [$(E::next_wakeup(&self.$field)),+].into_iter().flatten().min()
            }

            /// Creates or changes the session of an interface.
            pub fn configure(
                &mut self,
                port: &$crate::protocol::LinkPort,
                settings: &LinkSettings,
                now_ms: u64,
                env: &mut dyn $crate::protocol::Environment,
            ) -> $crate::protocol::SessionId {
                use $crate::protocol::LinkProtocol as L;
                match settings {
                    $(LinkSettings::$name(settings) => {
                        L::configure(&mut self.$field, port, settings, now_ms, env)
                    })+
                }
            }

            /// Executes a command ([`Protocol::commands`]) whose number of arguments is checked.
            ///
            /// # Errors
            /// The text of the command's error.
            pub fn run(
                &mut self,
                protocol: Protocol,
                command: usize,
                args: &[String],
                now_ms: u64,
            ) -> Result<String, String> {
                use $crate::protocol::LinkProtocol as L;
                match protocol {
                    $(Protocol::$name => {
                        let row = <$engine as L>::COMMANDS.get(command).ok_or("no such command")?;
                        (row.run)(&mut self.$field, args, now_ms)
                    })+
                }
            }
        }
    };
}
pub(crate) use link_protocols;
