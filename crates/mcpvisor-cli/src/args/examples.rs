//! Examples and notes in the help of each command.

/// In the help of the program.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0    ok
  1    usage error or unexpected failure
  3    authorization needed
  4    server unreachable, or call not sent
  5    tool, prompt or resource failed or does not exist
  6    outcome unknown: sent, but the answer was lost
  7    deadline exceeded
  130  interrupted

Start with \"mcpvisor demo\", then \"mcpvisor --config mcp.json status\".";

pub(super) const DEMO: &str = "\
Examples:
  mcpvisor demo                 live screen, about 20 seconds
  mcpvisor demo --plain         one line per event
  mcpvisor demo --seconds 60    random faults for a minute
  mcpvisor demo --json          only the summary";

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
  mcpvisor status                       connect to all servers and show their state
  mcpvisor status --watch               live screen; ? shows its keys
  mcpvisor status --watch --json        one JSON line per change";

pub(super) const TOOLS: &str = "\
Examples:
  mcpvisor tools
  mcpvisor tools files
  mcpvisor tools files --json           with schemas";

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
Values are typed by the tool's schema. KEY:=JSON is sent as written. Repeat a key to build a list.
KEY=VALUE overrides --args.

Examples:
  mcpvisor call files read_text_file path=README.md
  mcpvisor call files.read_text_file path=README.md head=5
  mcpvisor call web search 'filter:={\"since\":\"2026-01-01\"}' tags=a tags=b
  echo '{\"path\":\"README.md\"}' | mcpvisor call files read_text_file --args -
  mcpvisor call files read_text_file --args @arguments.json --timeout 10s
  mcpvisor call camera shot --out pictures
  mcpvisor call files find name=notes --follow
  mcpvisor call builds release --task";

pub(super) const TASKS: &str = "\
Ids are kept for 7 days. Only a server that keeps its tasks knows them in the next command: one over
HTTP, or one that stores them.

Examples:
  mcpvisor tasks                        tasks of all servers, with their status
  mcpvisor tasks await 5f2c             wait for the result
  mcpvisor tasks await 5f2c --timeout 10m
  mcpvisor tasks cancel 5f2c";

pub(super) const PROMPT: &str = "\
Examples:
  mcpvisor prompt files review path=README.md
  mcpvisor prompt files.review path=README.md --json";

pub(super) const READ: &str = "\
Examples:
  mcpvisor read files file:///srv/notes.txt
  mcpvisor read camera camera://front --out pictures";

pub(super) const LOGIN: &str = "\
Opens the browser and prints the URL. If the browser runs on another machine, paste the URL that it
ends on. The token is stored, and renewed when it expires.

Examples:
  mcpvisor login github
  mcpvisor login github --no-browser    only print the URL
  mcpvisor login github --device        enter a code on another device
  mcpvisor login github --scope repo    request a further scope
  mcpvisor login github --account work";

pub(super) const LOGOUT: &str = "\
Tokens that the issuer cannot revoke are removed too, and so are files that cannot be read.

Examples:
  mcpvisor logout github
  mcpvisor logout github --account work";

pub(super) const AUTH: &str = "\
IN USE marks the login that a server uses: that of the account in its entry. Files that cannot be
read are listed with what to do about them.

Examples:
  mcpvisor auth
  mcpvisor auth --json";

pub(super) const DOCTOR: &str = "\
Exit codes: 0 if every enabled server works, 3 if one needs authorization, else 4. Warnings do not
change the exit code.

Examples:
  mcpvisor doctor
  mcpvisor doctor files
  mcpvisor doctor --json";

pub(super) const TRUST: &str = "\
A config found in the working folder may come from a cloned repository, so its commands run only
after you trust it. Its commands are shown first, with changes since it was last trusted. Editing the
config revokes trust. A config passed with --config needs no trust.

Examples:
  mcpvisor trust                        review the config of this folder and confirm
  mcpvisor trust --yes                  skip the confirmation
  mcpvisor trust --list
  mcpvisor trust --forget";

pub(super) const APPROVE: &str = "\
With \"pin\": true in a server's entry, a tool whose definition changed is held back until you approve
it. Tools of the first connection are approved.

Examples:
  mcpvisor approve files --list         show held-back tools and their changes
  mcpvisor approve files write_file     approve one tool
  mcpvisor approve files write_file --hash 0123456789abcdef0123456789abcdef
                                        only the definition that --list showed
  mcpvisor approve files                approve all";

pub(super) const COMPLETIONS: &str = "\
Examples:
  mcpvisor completions bash > ~/.local/share/bash-completion/completions/mcpvisor
  mcpvisor completions zsh > ~/.zfunc/_mcpvisor
  mcpvisor completions fish > ~/.config/fish/completions/mcpvisor.fish";
