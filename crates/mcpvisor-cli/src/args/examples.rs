//! Examples for the help of each command, as one would type them.

/// Behind the help of the whole program.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    ok
  1    wrong use, or something unexpected
  3    authorization needed
  4    server unreachable, or the call was not sent
  5    the tool, prompt or resource failed or does not exist
  6    outcome unknown: the call was sent and its answer is lost
  7    deadline
  130  interrupted

Start with \"mcpvisor demo\", then \"mcpvisor --config mcp.json status\".";

pub(super) const DEMO: &str = "\
Examples:
  mcpvisor demo                 the live screen, about 20 seconds
  mcpvisor demo --plain         one line per event
  mcpvisor demo --seconds 60    agents and faults for a minute
  mcpvisor demo --json          only the summary, for a program";

pub(super) const LIST: &str = "\
Examples:
  mcpvisor list
  mcpvisor --config mcp.json list --json";

pub(super) const GET: &str = "\
Examples:
  mcpvisor get files
  mcpvisor get files --json";

pub(super) const STATUS: &str = "\
Examples:
  mcpvisor status                       connect to all, show what became of it
  mcpvisor status --watch               a live screen; ? shows its keys
  mcpvisor status --watch --json        one JSON line per change";

pub(super) const TOOLS: &str = "\
Examples:
  mcpvisor tools
  mcpvisor tools files
  mcpvisor tools files --json           with the schemas";

pub(super) const PROMPTS: &str = "\
Examples:
  mcpvisor prompts
  mcpvisor prompts files --json";

pub(super) const RESOURCES: &str = "\
Examples:
  mcpvisor resources
  mcpvisor resources files --json";

pub(super) const TEMPLATES: &str = "\
Examples:
  mcpvisor templates
  mcpvisor templates files --json";

pub(super) const CALL: &str = "\
A value gets its type from the tool's schema; KEY:=JSON says it exactly and is not checked. A key
that is there twice makes a list. Words win over --args.

Examples:
  mcpvisor call files read_text_file path=README.md
  mcpvisor call files.read_text_file path=README.md head=5
  mcpvisor call web search 'filter:={\"since\":\"2026-01-01\"}' tags=a tags=b
  echo '{\"path\":\"README.md\"}' | mcpvisor call files read_text_file --args -
  mcpvisor call files read_text_file --args @arguments.json --timeout 10s
  mcpvisor call camera shot --out pictures";

pub(super) const PROMPT: &str = "\
Examples:
  mcpvisor prompt files review path=README.md
  mcpvisor prompt files.review path=README.md --json";

pub(super) const READ: &str = "\
Examples:
  mcpvisor read files file:///srv/notes.txt
  mcpvisor read camera camera://front --out pictures";

pub(super) const DOCTOR: &str = "\
Exits with 0 if every enabled server works, with 3 if one needs authorization, else with 4.
Warnings do not change the exit code.

Examples:
  mcpvisor doctor
  mcpvisor doctor files
  mcpvisor doctor --json";

pub(super) const TRUST: &str = "\
A config that was found in the working folder, not named with --config, may come with a cloned
repository. Its commands do not run before you trust it; a changed config has to be trusted again.
What it runs is shown first, with its arguments and with what changed since it was last trusted.

Examples:
  mcpvisor trust                        review the config of this folder, then confirm
  mcpvisor trust --yes                  without asking, for scripts
  mcpvisor trust --list
  mcpvisor trust --forget";

pub(super) const APPROVE: &str = "\
With \"pin\": true in a server's entry, tools whose definition changed since they were approved are
held back until they are approved again. What a server offers when it is first seen is approved.

Examples:
  mcpvisor approve files --list         what is held back, and what differs
  mcpvisor approve files write_file     release this one
  mcpvisor approve files write_file --hash 0123456789abcdef0123456789abcdef
                                        only if it is still what --list showed
  mcpvisor approve files                release all of them";

pub(super) const COMPLETIONS: &str = "\
Examples:
  mcpvisor completions bash > ~/.local/share/bash-completion/completions/mcpvisor
  mcpvisor completions zsh > ~/.zfunc/_mcpvisor
  mcpvisor completions fish > ~/.config/fish/completions/mcpvisor.fish";
