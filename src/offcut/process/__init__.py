"""Processes, sockets and network interfaces of one machine.

- `fork_server`: a server that forks a process per request, and its client
- `parent_death`: a process that ends with the process that started it
- `process_group`: ending a process and everything in its group
- `clocks`: the clocks of this computer, which a simulation replaces
- `daemon_thread`: calls that may hang, made in threads that do not keep the process from ending
- `unix_socket`: UNIX sockets: listening, asking whether somebody listens, who is at the other end
- `network_interfaces`: this machine's network interfaces and their addresses
- `json_lines`: one JSON object per line
- `nonblocking_log`: a log that never delays its program
"""
