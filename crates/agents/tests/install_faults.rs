//! A full disk or a failing one while settings are written: the file is the old one or the new one, and nothing lies about.
//! Alone in its file, because fault points are one for the whole process.

use std::fs;
use std::path::Path;

use stepback_agents::Agent;
use stepback_agents::install::{InstallDirection, InstallScope, SettingsPaths, apply_plan, plan};
use stepback_faults::{Fault, arm, disarm};
use tempfile::TempDir;

#[test]
fn a_failing_disk_leaves_the_old_file_or_the_new_one() {
    for before in [None, Some("{\n  \"model\": \"x\"\n}\n")] {
        for fault in [Fault::DiskFull, Fault::Once] {
            let mut failures = 0;
            for nth in 1.. {
                let dir = TempDir::new().unwrap();
                let place = SettingsPaths::from_home(dir.path(), &dir.path().join("work"));
                if let Some(text) = before {
                    fs::create_dir(&place.gemini_dir).unwrap();
                    fs::write(place.gemini_dir.join("settings.json"), text).unwrap();
                }
                let binary = Path::new("/bin/stepback");
                let plan =
                    plan(Agent::Gemini, InstallScope::User, &place, binary, false, InstallDirection::Install)
                        .unwrap();
                arm(fault, nth);
                let done = apply_plan(&plan);
                disarm();
                let now = fs::read(&plan.file).ok();
                if done.is_ok() {
                    assert_eq!(now, plan.after);
                    break;
                }
                failures += 1;
                assert_eq!(now, plan.before);
                let left = fs::read_dir(&place.gemini_dir).map_or(0, Iterator::count);
                assert_eq!(left, usize::from(before.is_some()), "fault {nth}");
                assert_eq!(place.gemini_dir.exists(), before.is_some(), "fault {nth}");
            }
            assert!(failures >= 2);
        }
    }
}
