//! `afxdp`: an existing network interface, by AF_XDP.

use super::port_type::{DeviceOrigin, KernelPort, OptionChange, PortType};
use super::reader::OptionReader;
use std::fmt;

/// Options of an `afxdp` port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AfxdpPort {
    /// Reception mode (`options:xdp-mode`).
    pub mode: XdpMode,
    /// Receive queues, at least 1. The device must have as many.
    pub n_rxq: u32,
    /// Call the kernel only if it requests a wakeup (`options:use-need-wakeup`).
    pub use_need_wakeup: bool,
}

impl Default for AfxdpPort {
    fn default() -> AfxdpPort {
        AfxdpPort { mode: XdpMode::default(), n_rxq: 1, use_need_wakeup: true }
    }
}

/// Reception mode of an `afxdp` port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XdpMode {
    /// The fastest supported one.
    #[default]
    BestEffort,
    /// In the driver, zero-copy.
    NativeWithZerocopy,
    /// In the driver, with a copy by the kernel.
    Native,
    /// Generic, before the host's stack: any device.
    Generic,
}

impl XdpMode {
    /// All modes.
    pub const ALL: [XdpMode; 4] =
        [XdpMode::BestEffort, XdpMode::NativeWithZerocopy, XdpMode::Native, XdpMode::Generic];

    /// Value of `options:xdp-mode`.
    pub fn name(self) -> &'static str {
        match self {
            XdpMode::BestEffort => "best-effort",
            XdpMode::NativeWithZerocopy => "native-with-zerocopy",
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        }
    }

    fn parse(options: &OptionReader<'_>) -> Result<XdpMode, String> {
        let Some(text) = options.get("xdp-mode") else { return Ok(XdpMode::default()) };
        let known = XdpMode::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| {
            let [modes @ .., last] = XdpMode::ALL.map(XdpMode::name);
            let modes = modes.join(", ");
            options.bad(format_args!("option xdp-mode: {text:?} is no xdp-mode: {modes} and {last} are"))
        })
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PortType for AfxdpPort {
    const NAMES: &'static [&'static str] = &["afxdp"];
    const KEYS: &'static [&'static str] = &["n_rxq", "use-need-wakeup", "xdp-mode"];
    const DEVICE: DeviceOrigin = DeviceOrigin::Existing;
    const OPENS_TOGETHER: bool = false;
    const NEEDS_ENABLE_DUMMY: bool = false;

    fn parse(options: &mut OptionReader<'_>) -> Result<AfxdpPort, String> {
        Ok(AfxdpPort {
            mode: XdpMode::parse(options)?,
            n_rxq: options.n_rxq,
            use_need_wakeup: options.switch("use-need-wakeup", true)?,
        })
    }

    fn type_name(&self) -> &str {
        "afxdp"
    }

    fn userspace_type_name(&self) -> &str {
        self.type_name()
    }

    fn kernel_port(&self) -> Option<KernelPort> {
        None
    }

    fn change(&self, wanted: &AfxdpPort) -> OptionChange {
        OptionChange::of_all(self, wanted)
    }

    fn shown(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
