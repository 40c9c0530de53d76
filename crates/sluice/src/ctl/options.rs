//! The command line of `sluice ctl`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;

/// The file name of the daemon's database.
const DATABASE: &str = "conf.db";

/// Commands, with the names of ovs-ctl.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Action {
    /// Start the daemon, and record the identity of the system in its database
    Start,
    /// End the daemon: by its command exit, then by SIGTERM, then by SIGKILL
    Stop,
    /// Hand over to a new process if the options are those of the running daemon; else stop, then start
    Restart,
    /// Hand the running switch over to a new process of the installed program, without loss of packets
    Reload,
    /// Print whether the daemon runs; exit code 1 if not
    Status,
    /// Print the version of the installed daemon, and of the running one if they differ
    Version,
    /// Test the needs of a start, and list settings without effect; starts nothing
    Check,
    /// Insert the kernel module of the datapath, if missing
    LoadKmod,
    /// Refused: the message says why
    ForceReloadKmod,
    /// Delete ports with other_config:transient=true
    DeleteTransientPorts,
    /// Record the name of this machine in the database, if there is none
    RecordHostnameIfNotSet,
}

/// Arguments of `sluice ctl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The command
    pub(super) action: Action,
    /// Identity of this system: a UUID, or `random` for a lasting one in system-id.conf
    #[arg(long, value_name = "UUID", default_value = "random")]
    pub(super) system_id: String,
    /// Type of this system; the default is that of system-type.conf, else ID of /etc/os-release
    #[arg(long, value_name = "TYPE")]
    pub(super) system_type: Option<String>,
    /// Version of this system; the default is that of system-version.conf, else VERSION_ID of /etc/os-release
    #[arg(long, value_name = "VERSION")]
    pub(super) system_version: Option<String>,
    /// Add a pair to external_ids of Open_vSwitch
    #[arg(long = "external-id", value_name = "KEY=VALUE", value_parser = pair)]
    pub(super) external_ids: Vec<(String, String)>,
    /// Delete all bridges right after the start
    #[arg(long)]
    pub(super) delete_bridges: bool,
    /// Delete ports with other_config:transient=true right after the start
    #[arg(long)]
    pub(super) delete_transient_ports: bool,
    /// Have the daemon become this user
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(super) ovs_user: Option<String>,
    /// Database file; its name must be conf.db
    #[arg(long, value_name = "FILE")]
    pub(super) db_file: Option<PathBuf>,
    /// Follow the server at db.sock in the folder of sockets, in place of serving the database
    #[arg(long)]
    pub(super) no_ovsdb_server: bool,
    /// Keep no process that starts the daemon anew after a crash
    #[arg(long)]
    pub(super) no_monitor: bool,
    /// Let the memory of the daemon be paged out
    #[arg(long)]
    pub(super) no_mlockall: bool,
    /// Working folder of the daemon
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub(super) daemon_cwd: PathBuf,
    /// Niceness of the daemon
    #[arg(long, value_name = "NICE", default_value_t = -10, allow_hyphen_values = true)]
    pub(super) ovs_vswitchd_priority: i8,
    /// Further options of sluiced, separated by spaces
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    pub(super) ovs_vswitchd_options: String,
    /// Record the short name of this machine, which needs no name server
    #[arg(long)]
    pub(super) no_full_hostname: bool,
    /// Record no name of this machine
    #[arg(long)]
    pub(super) no_record_hostname: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("not of the form KEY=VALUE")?;
    Ok((key.to_string(), value.to_string()))
}

impl Options {
    /// The folder of `--db-file`.
    pub(super) fn database_folder(&self) -> Result<Option<PathBuf>> {
        let Some(file) = &self.db_file else { return Ok(None) };
        let folder = file.parent().filter(|folder| *folder != Path::new(""));
        match (file.file_name().and_then(|name| name.to_str()), folder) {
            (Some(DATABASE), Some(folder)) => Ok(Some(std::path::absolute(folder)?)),
            (Some(DATABASE), None) => Ok(Some(std::env::current_dir()?)),
            _ => bail!(
                "--db-file={}: sluiced names its database {DATABASE}; give a path that ends so",
                file.display()
            ),
        }
    }
}
