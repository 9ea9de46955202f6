# launcher: event loop (libuv, its static archive for the agent), SSH (libssh), topologies for plan (hwloc).
DS_NEED_PKG([UV], [libuv], [libuv1-dev])
DS_NEED_PKG([UV_STATIC], [libuv-static], [libuv1-dev])
DS_NEED_PKG([LIBSSH], [libssh >= 0.10], [libssh-dev])
DS_NEED_PKG([SODIUM], [libsodium], [libsodium-dev])
DS_WITH_PKG([HWLOC], [hwloc], [libhwloc-dev], [plan --topology])
