"""The commands, one thin file each: `main(argv) -> exit code`."""
