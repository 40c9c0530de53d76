//! Files of a thread, by Landlock.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus,
};

/// The newest version of Landlock whose rights of files are used; older kernels have fewer of them.
const VERSION: ABI = ABI::V5;

/// Files that a kind of thread uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Files {
    /// Those below these paths, for reading.
    Read(&'static [&'static str]),
    /// Those below the first paths for reading, and these, which exist, for writing.
    ReadAndWrite(&'static [&'static str], &'static [&'static str]),
    /// Regular files in the given folders: reading, writing, creating, renaming, removing.
    Given,
    /// Files in the given folders, for removal alone.
    Removed,
}

/// Whether the kernel has Landlock.
pub(super) fn is_available() -> Result<(), String> {
    // A thread of its own is restricted, for good.
    let tried = std::thread::spawn(|| restrict(Files::Read(&[]), &[])).join();
    tried.unwrap_or_else(|_| Err(io::Error::other("the attempt failed"))).map_err(|e| e.to_string())
}

/// Restricts the calling thread.
pub(super) fn restrict(files: Files, folders: &[&Path]) -> io::Result<()> {
    let failed = |e: landlock::RulesetError| io::Error::other(e.to_string());
    let read = BitFlags::from(AccessFs::ReadFile) | AccessFs::ReadDir;
    let write = BitFlags::from(AccessFs::WriteFile);
    let all = read | write | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    let paths = |paths: &'static [&'static str]| paths.iter().map(Path::new);
    let rules: Vec<(&Path, BitFlags<AccessFs>)> = match files {
        Files::Read(read_only) => paths(read_only).map(|path| (path, read)).collect(),
        Files::ReadAndWrite(read_only, written) => {
            let written = paths(written).map(|path| (path, write));
            paths(read_only).map(|path| (path, read)).chain(written).collect()
        }
        Files::Removed => folders.iter().map(|path| (*path, AccessFs::RemoveFile.into())).collect(),
        Files::Given => folders.iter().map(|path| (*path, all)).collect(),
    };
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(VERSION)).map_err(failed)?;
    let mut created = ruleset.create().map_err(failed)?;
    for (path, access) in rules {
        // A path that does not exist needs no rule.
        let Ok(fd) = PathFd::new(path) else { continue };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
        created = created.add_rule(PathBeneath::new(fd, access)).map_err(failed)?;
    }
    match created.restrict_self().map_err(failed)?.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::other("this kernel has no Landlock, or it is off")),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}
