"""The sandbox of a local server: the files, hosts and sockets that its process can reach.

- `server`: one server's sandbox, for all starts
- `rules`: a rule as a `Confinement`; `confinement`: that, and this kernel's support
- `paths`: needs of a command; `places`: system and secret paths
- `home`: the private home
- `launch`: starts `confine_program`, which applies Landlock and seccomp; a profile of macOS
- `filters`: the seccomp filter; `connector`: answers `connect` calls
- `network`: the proxy
- `learning`: notes a server's uses; `proposal`: a rule from that
"""
