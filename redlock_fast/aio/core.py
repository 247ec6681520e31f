"""The core of a client for asyncio: what its locks share, and the event loop that it belongs to."""

from __future__ import annotations

import asyncio
import functools

from ..errors import WrongLoop
from ..locks.client_core import ClientCore
from .loop import LoopBinding
from .owner_names import RunningTask
from .renewal import LoopRenewal


class LoopCore(ClientCore):
    """A ``ClientCore`` whose locks belong to the tasks of one event loop."""

    #: The binding to the loop that the client belongs to; None before the first ``await``.
    bound: LoopBinding | None = None

    _renewal: LoopRenewal | None = None

    @functools.cached_property
    def default_owner(self) -> RunningTask:
        return RunningTask()

    def renewal(self) -> LoopRenewal:
        """The background renewal of this client, one for each process. Raises WrongLoop."""
        binding = self.loop_binding()
        if self._renewal is None or self._renewal.generation != self.client_state.generation():
            self._renewal = LoopRenewal(self, binding)
        return self._renewal

    def loop_binding(self) -> LoopBinding:
        """The binding to the running loop. Raises WrongLoop if the client's loop is another one, and open."""
        binding = self.bound
        if binding is not None and binding.is_current():
            return binding
        loop = asyncio.get_running_loop()
        self.check_open()
        with self.masters.connector.monitor.mutex:  # two loops may find the earlier one closed
            before = self.bound
            if before is not None and before.generation != self.client_state.generation():
                before = None  # the parent's, before a fork
            if before is not None:
                if not before.loop.is_closed():
                    raise WrongLoop(
                        "the event loop of this client is another one, and not closed: "
                        "make a client for each loop"
                    )
                before.unbind()
            binding = self.bound = LoopBinding(self.masters, loop)
            self.default_owner.loop = loop
        if before is not None:
            self.masters.forget_callers()
            if self._renewal is not None:
                self._renewal.rebind(binding)
        return binding

    async def close(self) -> None:
        """Close all connections and end renewal. May be called again. Raises WrongLoop."""
        binding = self.bound
        if binding is not None and binding.alive():
            binding = self.loop_binding()
            if self._renewal is not None:
                await self._renewal.end()
            await binding.close()
            return
        self.masters.close()
        if binding is not None:
            binding.end()
