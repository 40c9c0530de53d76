//! [`PortType`]: the interface of one port type to the registry.

use super::reader::OptionReader;
use super::tunnel::TunnelPort;

/// A port type, with its options as the value. No method has a default.
pub(crate) trait PortType: Sized {
    /// Its names in `Interface.type`.
    const NAMES: &'static [&'static str];
    /// Keys of `Interface.options` that it reads.
    const KEYS: &'static [&'static str];
    /// Origin of its device.
    const DEVICE: DeviceOrigin;
    /// Whether many such devices are opened and closed together; only for devices that exist before their port.
    const OPENS_TOGETHER: bool;
    /// Whether it exists only with `--enable-dummy`.
    const NEEDS_ENABLE_DUMMY: bool;

    /// Parses the options of an interface.
    ///
    /// # Errors
    /// The error for its row, with key, value and the allowed values.
    fn parse(options: &mut OptionReader<'_>) -> Result<Self, String>;

    /// Type name as in databases and `dpctl/show`.
    fn type_name(&self) -> &str;

    /// Type name in a userspace datapath.
    fn userspace_type_name(&self) -> &str;

    /// The port that serves it in a kernel datapath; `None`: it needs the userspace datapath.
    fn kernel_port(&self) -> Option<KernelPort>;

    /// Effect of other options on an open port.
    fn change(&self, wanted: &Self) -> OptionChange;

    /// The options that `dpif/show` and `dpctl/show` have.
    fn shown(&self) -> Vec<(&'static str, String)>;
}

/// Origin of the device of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceOrigin {
    /// A network interface of the host, which keeps its address.
    Existing,
    /// A network interface that the switch makes and deletes.
    Created,
    /// No network interface has the name, so it may be longer than names of those.
    None,
}

/// A port of a kernel datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelPort {
    /// A network interface (`OVS_VPORT_TYPE_NETDEV`).
    Netdev,
    /// As [`KernelPort::Netdev`], for a tap that the switch makes.
    Tap,
    /// A host-side device (`OVS_VPORT_TYPE_INTERNAL`).
    Internal,
    /// The port of tunnels of a kind, if the kernel has it.
    Tunnel(TunnelPort),
}

/// Effect of other options on an open port, in order of effort.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OptionChange {
    /// None: the device stays as it is.
    Keep,
    /// Its receive queues are reopened.
    ReopenQueues,
    /// The device is closed and opened anew.
    Reopen,
}

impl OptionChange {
    /// For a type whose device has its options from opening.
    pub(super) fn of_all<T: PartialEq>(is: &T, wanted: &T) -> OptionChange {
        if is == wanted { OptionChange::Keep } else { OptionChange::Reopen }
    }
}
