"""Adds the programs in $ROOFLINED_PROGRAMS as commands, and names $ROOFLINED_PLATFORM, which they run on."""
import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Programs(BuildHookInterface):
    def initialize(self, version, build_data):
        programs = os.environ["ROOFLINED_PROGRAMS"]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['ROOFLINED_PLATFORM']}"
        build_data["shared_scripts"] = {os.path.join(programs, name): name for name in ("rooflined", "rooflinectl")}
