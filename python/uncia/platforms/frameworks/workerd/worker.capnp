using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "function", worker = .function)],
  sockets = [(name = "http", address = "127.0.0.1:{port}", http = (), service = "function")],
);
const function :Workerd.Worker = (
  modules = [
    {modules}
  ],
  bindings = [
    {bindings}
  ],
  compatibilityDate = "2025-11-01",
  compatibilityFlags = ["nodejs_compat"],
);
