"""The commands of the workbench, one thin file each: `main(argv) -> exit code`."""
