"""The campaign's command."""

from benchmarks.reliability.campaign import main

if __name__ == "__main__":
    main()
