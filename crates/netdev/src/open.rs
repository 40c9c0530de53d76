//! [`open`]: opens the device of a port by its type.
//!
//! Each type of `dpif::port_types` has an [`Opener`] in its own file here. A type without one does not compile.

use std::io;

use dpif::{PortSpec, PortTypeVisitor};

use crate::{Dummy, Port, SystemOptions};

/// Opens the devices of one port type, whose options are the value.
pub(crate) trait Opener {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort>;
}

/// A port to open.
pub(crate) struct Opening<'a> {
    pub(crate) spec: &'a PortSpec,
    /// For `system` ports.
    pub(crate) system: &'a SystemOptions,
}

impl<T: Opener> PortTypeVisitor<T> for Opening<'_> {
    type Output = io::Result<OpenedPort>;

    fn visit(&self, options: &T) -> io::Result<OpenedPort> {
        options.open(self)
    }
}

/// An opened port.
pub struct OpenedPort {
    /// Its device.
    pub device: Port,
    /// Its control handle, for a dummy.
    pub dummy: Option<Dummy>,
    /// Polled by the main loop, not by a forwarding thread.
    pub inline: bool,
    /// Unknown to the kernel.
    pub bare: bool,
    /// Messages for the log.
    pub notes: Vec<OpenNote>,
}

/// A message about an opened device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenNote {
    /// Module of the log.
    pub module: &'static str,
    /// Text, with the port's name.
    pub text: String,
    /// A warning, rather than information.
    pub is_warning: bool,
}

impl OpenedPort {
    /// A port with a device of the kernel.
    pub(crate) fn of_kernel(device: Port) -> OpenedPort {
        OpenedPort { device, dummy: None, inline: false, bare: false, notes: Vec::new() }
    }

    /// A port without such a device.
    pub(crate) fn bare(device: Port) -> OpenedPort {
        OpenedPort { bare: true, ..OpenedPort::of_kernel(device) }
    }
}

/// Opens the device of a port. `system` applies to `system` ports; their own options override it.
///
/// # Errors
/// The device is missing, in use, or cannot have these options.
pub fn open(spec: &PortSpec, system: &SystemOptions) -> io::Result<OpenedPort> {
    spec.options.visit(&Opening { spec, system })
}
